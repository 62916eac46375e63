"""Which device each lane has on this machine, or why it has none."""

from __future__ import annotations

from pathlib import Path

from dgrctl.errors import ToolchainError, UsageError
from dgrctl.lanes import cpu, cuda, metal, rocm, vulkan
from dgrctl.lanes.lane import DeviceIdentity, Lane

__all__ = ["LANES", "DeviceIdentity", "detect", "unavailable_reason"]

_MODULES: tuple[Lane, ...] = (cpu, cuda, rocm, vulkan, metal)
LANES = tuple(module.NAME for module in _MODULES)


def unavailable_reason(lane: str, root: Path = Path("/")) -> str | None:
    """Why nothing can be certified on ``lane`` here, in one sentence; None if something can.

    Raises:
        UsageError: there is no such lane.
    """
    return "; ".join(_module(lane).obstacles(root)) or None


def detect(lane: str, root: Path = Path("/")) -> DeviceIdentity:
    """The device of ``lane`` on this machine.

    Raises:
        ToolchainError: there is none; says why.
        UsageError: there is no such lane.
    """
    reason = unavailable_reason(lane, root)
    if reason is not None:
        raise ToolchainError(f"the lane {lane} has no device here: {reason}", where=lane, remedy="use a machine of that lane")
    return _module(lane).device(root)


def _module(lane: str) -> Lane:
    for module in _MODULES:
        if lane == module.NAME:
            return module
    raise UsageError(f"there is no lane {lane!r}", where="--lane", remedy=f"name one of {', '.join(LANES)}")
