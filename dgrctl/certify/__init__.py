"""Certification: what it takes, plan, parity, speed, environment, verdict."""

import dgrctl.wire  # noqa: F401 - puts the generated contract on the path as dgr.v1
