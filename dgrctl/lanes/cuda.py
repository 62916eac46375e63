"""The CUDA lane: NVIDIA GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from dgrctl.lanes.lane import NOT_BUILT
from dgrctl.lanes.probe import program

NAME = "cuda"


def obstacles(root: Path) -> list[str]:
    """No GPU, driver or compiler, as far as each is missing."""
    found = []
    if not list(root.glob("dev/nvidia[0-9]*")):
        found.append("no NVIDIA GPU: there is no /dev/nvidia0")
    if not (root / "proc/driver/nvidia/version").exists():
        found.append("no NVIDIA driver: there is no /proc/driver/nvidia/version")
    if program(root, "nvcc", "usr/local/cuda/bin") is None:
        found.append("no nvcc on PATH or in /usr/local/cuda")
    return [*found, NOT_BUILT]


def device(root: Path) -> NoReturn:
    """Nothing to name while the lane has obstacles."""
    raise LookupError(f"the {NAME} lane has no device below {root}")
