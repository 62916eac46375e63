"""Benchmarks of the split against the whole; ``make bench`` runs them. Certification measures for itself, under a lock."""

import dgrctl.wire  # noqa: F401 - puts the generated contract on the path as dgr.v1
