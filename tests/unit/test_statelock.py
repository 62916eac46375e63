"""Locks: one holder, named to whoever waits, and held on by the children of a holder that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dgrctl.layout import Layout
from dgrctl.statelock import state_lock

_HOLDER = """
import subprocess, sys
from pathlib import Path
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
with state_lock(Layout(Path(sys.argv[1])), "build-cpu", shared=sys.argv[2] == "shared") as descriptor:
    if sys.argv[2] == "with-child":
        # Ends when its standard input does, which this test's own process holds.
        subprocess.Popen(["cat"], pass_fds=(descriptor,))
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(root: Path, kind: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(root), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def _acquire(layout: Layout) -> tuple[threading.Thread, threading.Event, list[str]]:
    """A thread that takes the lock; the event is set once it has said for whom it waits."""
    waits = threading.Event()
    said: list[str] = []

    def waiting(message: str) -> None:
        said.append(message)
        waits.set()

    def take() -> None:
        with state_lock(layout, "build-cpu", waiting=waiting):
            pass

    thread = threading.Thread(target=take)
    thread.start()
    return thread, waits, said


def test_a_second_one_waits_and_says_for_whom(tmp_path: Path) -> None:
    with _holder(tmp_path, "alone") as holder:
        thread, waits, said = _acquire(Layout(tmp_path))
        assert waits.wait(60)
        assert thread.is_alive()
        holder.communicate(b"")
        thread.join()
    assert f"process {holder.pid}" in said[0]
    assert "'build-cpu'" in said[0]


def test_a_killed_holder_leaves_nothing_stale(tmp_path: Path) -> None:
    with _holder(tmp_path, "alone") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with state_lock(Layout(tmp_path), "build-cpu", waiting=pytest.fail):
            pass


def test_the_child_of_a_killed_holder_holds_on(tmp_path: Path) -> None:
    with _holder(tmp_path, "with-child") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        thread, waits, said = _acquire(Layout(tmp_path))
        assert waits.wait(60)
        assert thread.is_alive()
        assert holder.stdin is not None
        holder.stdin.close()  # and with it the child's standard input
        thread.join()
    assert "left running" in said[0]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="without /proc/locks nobody can tell who shares a lock")
def test_a_writer_is_told_of_a_reader(tmp_path: Path) -> None:
    with _holder(tmp_path, "shared") as holder:
        thread, waits, said = _acquire(Layout(tmp_path))
        assert waits.wait(60)
        holder.communicate(b"")
        thread.join()
    assert f"waiting for process {holder.pid} (python" in said[0]


def test_readers_share(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with (
        state_lock(layout, "workspace", shared=True, waiting=pytest.fail),
        state_lock(layout, "workspace", shared=True, waiting=pytest.fail),
    ):
        pass


def test_a_released_lock_names_nobody(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with state_lock(layout, "workspace"):
        assert str(os.getpid()) in (layout.locks / "workspace.lock").read_text()
    assert (layout.locks / "workspace.lock").read_text() == ""
