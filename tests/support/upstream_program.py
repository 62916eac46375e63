"""``upstream_program.py N ARGUMENTS…``: dgrctl, which kills itself with SIGKILL at its N-th change of the disk (0: never).

Changes are what the interpreter's audit events show: files opened for writing, renames, removals, folders made, and programs
started. So a test can walk through every point at which a kill could matter, and not only hit some by chance.
"""

from __future__ import annotations

import os
import signal
import sys

import dgrctl.cli.main as command_line

_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.symlink", "subprocess.Popen"}


def _arm(kill_at: int) -> None:
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in _CHANGES or writes:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


if __name__ == "__main__":
    # The other groups are not needed here, and loading them would take most of the time.
    command_line.GROUPS = ("fetch", "patch")
    if int(sys.argv[1]):
        _arm(int(sys.argv[1]))
    sys.exit(command_line.main(sys.argv[2:]))
