"""The one shape behind which the lanes stand: a module per lane with a name, its obstacles and its device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Why a lane whose device may well be here is dark all the same.
NOT_BUILT = "this version builds only the cpu lane"


@dataclass(frozen=True)
class DeviceIdentity:
    """The device that computes.

    Attributes:
        name: As its maker or the kernel names it.
        isa: Highest ISA level (CPU) or device architecture that it runs.
        flags: Instruction set extensions, sorted.
        details: What tells it from others of the same name: vendor, family, model, stepping.
    """

    lane: str
    name: str
    isa: str
    flags: tuple[str, ...]
    details: Mapping[str, str]


class Lane(Protocol):
    """What each lane's module offers."""

    NAME: str

    def obstacles(self, root: Path) -> Sequence[str]:
        """Why nothing can be certified on this lane here, each a clause; empty if something can. ``root`` is the machine's /."""

    def device(self, root: Path) -> DeviceIdentity:
        """The device, when there are no obstacles."""
