"""What dgrctl starts ends with dgrctl, however dgrctl ends: git, CMake, Ninja, compilers, pip, workers.

Each is started with :func:`marked`, which adds one variable to its environment. :mod:`dgrctl.keeper` finds by it what is left.
Workers and the reference ask the kernel for their end, too (worker/support/lifeline.h).

The keeper needs Linux: pidfd and /proc. On other systems git and the build tools end when their pipes break.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Mapping

from dgrctl import keeper

_lock = threading.Lock()
# The process that the keeper belongs to, and the value of its mark. A fork has none yet.
_kept: tuple[int, str] | None = None


def marked(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` for a program that must not outlive this process."""
    return {**environment, keeper.MARK: _mark()}


def _mark() -> str:
    global _kept  # noqa: PLW0603 - one keeper for each process
    with _lock:
        if _kept is None or _kept[0] != os.getpid():
            value = secrets.token_hex(16)
            if hasattr(os, "pidfd_open"):
                _start_keeper(value)
            _kept = (os.getpid(), value)
        return _kept[1]


def _start_keeper(value: str) -> None:
    # Both ends close on exec: only this process holds the end that is written to.
    reading, _writing = os.pipe()
    try:
        # A session of its own: Ctrl-C and Ctrl-Z on the terminal reach dgrctl, and the keeper must go on.
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", keeper.__file__, value],
            {"PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    finally:
        os.close(reading)
