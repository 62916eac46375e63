"""The ROCm lane: AMD GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from dgrctl.lanes.lane import NOT_BUILT
from dgrctl.lanes.probe import program

NAME = "rocm"


def obstacles(root: Path) -> list[str]:
    """No GPU driver or compiler, as far as each is missing."""
    found = []
    if not (root / "dev/kfd").exists():
        found.append("no AMD compute driver: there is no /dev/kfd")
    if program(root, "hipcc", "opt/rocm/bin") is None:
        found.append("no hipcc on PATH or in /opt/rocm")
    return [*found, NOT_BUILT]


def device(root: Path) -> NoReturn:
    """Nothing to name while the lane has obstacles."""
    raise LookupError(f"the {NAME} lane has no device below {root}")
