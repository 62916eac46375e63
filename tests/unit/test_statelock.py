"""Locks: one holder, named to whoever waits, and held on by the children of a holder that was killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dgrctl.errors import LockedError, UsageError
from dgrctl.layout import Layout
from dgrctl.statelock import file_lock, state_lock

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
        assert waits.wait(60), "nothing was said"
        assert thread.is_alive()
        holder.communicate(b"")
        thread.join(60)
        assert not thread.is_alive()
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
        assert waits.wait(60), "nothing was said"
        assert thread.is_alive()
        assert holder.stdin is not None
        holder.stdin.close()  # and with it the child's standard input
        thread.join(60)
        assert not thread.is_alive()
    assert f"process {holder.pid} (dgrctl" in said[0]
    assert "has ended and left it running" in said[0]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="without /proc/locks nobody can tell who shares a lock")
def test_a_writer_is_told_of_a_reader(tmp_path: Path) -> None:
    with _holder(tmp_path, "shared") as holder:
        thread, waits, said = _acquire(Layout(tmp_path))
        assert waits.wait(60), "nothing was said"
        holder.communicate(b"")
        thread.join(60)
        assert not thread.is_alive()
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


def test_a_stopped_holder_is_named_at_once_with_what_to_do(tmp_path: Path) -> None:
    with _holder(tmp_path, "alone") as holder:
        holder.send_signal(signal.SIGSTOP)
        thread, waits, said = _acquire(Layout(tmp_path))
        assert waits.wait(60), "nothing was said"
        holder.send_signal(signal.SIGCONT)
        holder.communicate(b"")
        thread.join(60)
        assert not thread.is_alive()
    assert f"waiting for process {holder.pid} (dgrctl {tmp_path} alone, stopped, since " in said[0]
    assert f"may never let go: it is stopped; kill -CONT {holder.pid} lets it go on" in said[0]


@pytest.mark.parametrize("kind", ["alone", "shared"])
def test_a_wait_ends_after_its_bound_and_says_who_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("DGR_LOCK_SECONDS", "0.2")
    with _holder(tmp_path, kind) as holder:
        with pytest.raises(LockedError) as caught, state_lock(Layout(tmp_path), "build-cpu", waiting=lambda _: None):
            pytest.fail("it took a lock that another process holds")
        holder.communicate(b"")
    error = caught.value
    assert error.exit_code == 12
    assert "the lock 'build-cpu' was not free within" in error.what
    assert error.where == str(tmp_path / ".dgr" / "locks" / "build-cpu.lock")
    assert "DGR_LOCK_SECONDS" in (error.remedy or "")
    told = error.as_dict()["error"]
    assert isinstance(told, dict)
    assert [each["pid"] for each in told["holders"]] == [holder.pid]
    assert told["holders"][0]["state"] == "running"


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_bound_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DGR_LOCK_SECONDS", text)
    with _holder(tmp_path, "alone") as holder:
        with pytest.raises(UsageError, match="DGR_LOCK_SECONDS"), state_lock(Layout(tmp_path), "build-cpu"):
            pass
        holder.communicate(b"")


def test_a_new_lock_file_has_the_mode_of_its_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    with file_lock(shared / ".locks" / "model.lock", "model"):
        pass
    assert stat.S_IMODE((shared / ".locks").stat().st_mode) == 0o2775
    assert stat.S_IMODE((shared / ".locks" / "model.lock").stat().st_mode) == 0o664
