"""The Metal lane: GPUs of Apple's machines."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NoReturn

from dgrctl.lanes.lane import NOT_BUILT

NAME = "metal"


def obstacles(root: Path) -> list[str]:
    """Any system but macOS."""
    del root
    system = platform.system()
    return [*([] if system == "Darwin" else [f"Metal needs macOS, and this is {system}"]), NOT_BUILT]


def device(root: Path) -> NoReturn:
    """Nothing to name while the lane has obstacles."""
    raise LookupError(f"the {NAME} lane has no device below {root}")
