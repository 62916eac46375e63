"""Nothing that dgrctl starts outlives it: not its children's children, not in their own groups, not stopped ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from processes import dies, read

from dgrctl.offspring import marked

# A dgrctl that starts a shell, which starts a process in a group of its own, as Ninja starts compilers.
_PARENT = """
import os, subprocess, sys
from dgrctl.offspring import marked
middle = "import subprocess as s; g = s.Popen(['sleep', '600'], process_group=0); print(g.pid, flush=True); g.wait()"
child = subprocess.Popen(
    [sys.executable, "-c", middle],
    env=marked(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
)
print(child.pid, child.stdout.readline().decode().strip(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("before", [(), ("setsid",), ("nohup",)])
@pytest.mark.parametrize("number", [None, signal.SIGSTOP])
def test_children_and_their_children_end_with_a_killed_parent(before: tuple[str, ...], number: int | None) -> None:
    with subprocess.Popen(
        [*before, sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        pids = [int(word) for word in read(parent.stdout, until=b"\n").split()]
        watched = [os.pidfd_open(pid) for pid in pids]
        try:
            if number is not None:
                for pid in pids:
                    os.kill(pid, number)
            parent.kill()
            assert [dies(pidfd) for pidfd in watched] == [True, True]
        finally:
            for pidfd in watched:
                os.close(pidfd)


def test_the_mark_changes_nothing_else() -> None:
    environment = marked({"A": "b"})
    assert {name: value for name, value in environment.items() if name != "DGR_KEEPER"} == {"A": "b"}
    assert marked({})["DGR_KEEPER"] == environment["DGR_KEEPER"]
