"""Who could take a lock now."""

from __future__ import annotations

import fcntl
from pathlib import Path


def can_lock(path: Path, *, shared: bool = False) -> bool:
    """Whether another process could take the lock of this file now, alone or beside other readers."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
