"""``model_program.py MODE STEP ARGUMENTS…``: dgrctl, to which something happens just before a step of its own.

STEP is a number (the N-th change of the disk or program started) or ``EVENT:ENDING`` (the first audit event of that name whose
path or program ends so). MODE says what happens:

* ``kill``: SIGKILL.
* ``hold``: it says so on the socket HELD_FD and goes on when something comes, or the other side closes.
* ``fill``: a file ``filler`` in the storage DGR_STORAGE takes all the space that is left.
* ``burst``: not before a step, but in the middle of the write that takes a file past STEP bytes: SIGXFSZ.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import dgrctl.cli.main as command_line

_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "subprocess.Popen"}


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hold() -> None:
    descriptor = int(os.environ["HELD_FD"])
    os.write(descriptor, b"held")
    os.read(descriptor, 1)


def _fill() -> None:
    with contextlib.suppress(OSError), Path(os.environ["DGR_STORAGE"], "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass


def _arm(happen: Callable[[], None], step: str) -> None:
    seen = 0
    wanted, _, ending = step.partition(":")
    done = False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen, done
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if done or not (event in _CHANGES or writes):
            return
        seen += 1
        # The last of the paths: what a rename makes, what an open opens.
        path = str(arguments[1] if event == "os.rename" else arguments[0])
        if step == str(seen) or (event == wanted and path.endswith(ending)):
            done = True
            happen()

    sys.addaudithook(watch)


def run(mode: str, step: str, arguments: list[str]) -> NoReturn:
    """Runs dgrctl to its end, if it comes to that."""
    if mode == "burst":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(step), resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    else:
        _arm({"kill": _kill, "hold": _hold, "fill": _fill}[mode], step)
    sys.exit(command_line.main(arguments))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
