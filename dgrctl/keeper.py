"""The keeper: a small process that ends what dgrctl started when dgrctl has ended, however dgrctl ended.

:mod:`dgrctl.offspring` starts it as a script of its own, with the end of a pipe as its standard input. The kernel closes the
other end when dgrctl dies. Then the keeper kills every process that carries dgrctl's mark in its environment. The mark passes
from parent to child. So a compiler that Ninja started has it, too, whatever its process group is and even after Ninja has ended.
SIGKILL ends a stopped process as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

MARK = "DGR_KEEPER"
_PAUSE_SECONDS = 0.02
# A program that is just being started carries the mark only when it runs, so one look is not enough.
_EMPTY_LOOKS = 3
# A process that hangs in the kernel cannot be waited for without end.
_MOST_LOOKS = 1500


def end_marked(mark: bytes) -> int:
    """Kills every process whose environment holds ``mark`` ("NAME=value"); returns how many it found."""
    found = 0
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would take longer to load than this takes to run
        if name.isdigit() and int(name) != os.getpid():
            # The descriptor is opened first: the number can be another process's by the time of the signal.
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(int(name))
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123 - as above
                        marked = mark in file.read().split(b"\0")
                    if marked:
                        found += 1
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                finally:
                    os.close(pidfd)
    return found


def main() -> None:
    """Waits for end-of-file on standard input, then kills until nothing that is marked is left."""
    mark = f"{MARK}={sys.argv[1]}".encode()
    while os.read(0, 64):
        pass
    empty = 0
    for _ in range(_MOST_LOOKS):
        empty = 0 if end_marked(mark) else empty + 1
        if empty == _EMPTY_LOOKS:
            return
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
