"""Names that the tests of supervision share."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Protocol

from dgrctl.runtime.process import ServedProcess

PROGRAM = Path(__file__).parent / "served_program.py"

# How long a test waits for an event before it calls it missing. Nothing is measured against it.
PATIENCE = 30.0


class Spawn(Protocol):
    """Starts served_program.py with a behaviour."""

    def __call__(self, behaviour: str, *, isa: str | None = None) -> ServedProcess: ...


def dies(pidfd: int) -> bool:
    """Waits for the death of a process that need not be a child."""
    watch = select.poll()
    watch.register(pidfd, select.POLLIN)
    return bool(watch.poll(PATIENCE * 1000))
