"""The CPU lane."""

from __future__ import annotations

from pathlib import Path

from dgrctl.lanes.isa import highest
from dgrctl.lanes.lane import DeviceIdentity
from dgrctl.lanes.processor import read_processor

NAME = "cpu"


def obstacles(root: Path) -> list[str]:
    """A processor of an architecture for which no ISA levels are defined."""
    processor = read_processor(root)
    if highest(processor.machine, processor.flags) is None:
        return [f"no ISA level is defined for {processor.machine} processors like this {processor.name}"]
    return []


def device(root: Path) -> DeviceIdentity:
    """This machine's processor."""
    processor = read_processor(root)
    reached = highest(processor.machine, processor.flags)
    if reached is None:
        raise LookupError(f"{processor.name} has no ISA level")
    return DeviceIdentity(NAME, processor.name, reached.name, tuple(sorted(processor.flags)), processor.details)
