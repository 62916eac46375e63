"""The split against the whole, and the cost of a hop, without a verdict. Certification measures for itself, under a lock."""

import dgrctl.wire  # noqa: F401 - puts the generated contract on the path as dgr.v1
