"""Supervision of real processes: readiness, death, end, and what they inherit."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from supervision import PATIENCE, PROGRAM, Spawn, dies

from dgrctl.errors import AdmissionError, BuildError, DgrError, InputError, StageError
from dgrctl.runtime.endings import Cause
from dgrctl.runtime.process import ServedProcess, await_ready, stop_all


def refusal(process: ServedProcess) -> DgrError:
    with pytest.raises(DgrError) as caught:
        await_ready([process], PATIENCE)
    return caught.value


def test_ready_process_tells_its_address_and_ends_when_asked(spawn: Spawn) -> None:
    process = spawn("ready")
    await_ready([process], PATIENCE)
    assert process.address == "127.0.0.1:40000"
    assert process.wait(0) is None
    ending = process.stop(PATIENCE)
    # SIGTERM may reach the helper before it sees the end of its lifeline.
    assert ending.clean or ending.signal == "SIGTERM"
    assert not Path(f"/proc/{process.pid}").exists()


def test_several_are_awaited_together(spawn: Spawn) -> None:
    processes = [spawn("ready") for _ in range(3)]
    await_ready(processes, PATIENCE)
    stop_all(processes, PATIENCE)
    assert all(process.wait(0) is not None for process in processes)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("closes_stdout", "closed its stdout before it was ready"),
        ("garbage", "no ready line"),
        ("not_utf8", "no ready line"),
        ("unknown_field", "no ready line"),
        ("wrong_pid", "says that it is process 1, but"),
        ("endless_line", "wrote no line end in its first 65536 bytes"),
    ],
)
def test_what_does_not_speak_the_protocol_is_refused(spawn: Spawn, behaviour: str, words: str) -> None:
    error = refusal(spawn(behaviour))
    assert isinstance(error, StageError)
    assert words in error.what
    assert "stage 1 (layers 15:30)" in error.what
    assert error.remedy


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("half_line", "exited with code 7"),
        ("logs_then_exits", "exited with code 7"),
        ("aborts", "aborted (SIGABRT)"),
        ("crashes", "crashed (SIGSEGV)"),
        ("illegal_instruction", "this CPU lacks an instruction of ISA level x86-64-v4"),
        ("leaves_a_child_with_stdout", "was killed by SIGKILL"),
    ],
)
def test_death_before_readiness_says_how(spawn: Spawn, behaviour: str, words: str) -> None:
    error = refusal(spawn(behaviour, isa="x86-64-v4"))
    assert isinstance(error, StageError)
    assert words in error.what


def test_error_shows_the_last_lines_of_the_log_and_its_path(spawn: Spawn) -> None:
    process = spawn("logs_then_exits")
    error = refusal(process)
    assert error.detail is not None
    assert error.detail.splitlines()[-1] == "log line 99"
    assert "log line 0" not in error.detail.splitlines()
    assert str(process.log) in (error.where or "")


def test_refusal_of_the_program_keeps_its_kind_message_and_remedy(spawn: Spawn) -> None:
    error = refusal(spawn("refuses"))
    assert isinstance(error, InputError)
    assert "the model is of architecture 'gpt2'" in error.what
    assert error.remedy == "use llama"
    assert isinstance(refusal(spawn("out_of_room")), AdmissionError)


def test_never_ready_is_bounded(spawn: Spawn) -> None:
    process = spawn("never")
    with pytest.raises(StageError, match=r"is not ready after 0\.05 s"):
        await_ready([process], 0.05)
    assert process.wait(0) is None


def test_one_that_dies_after_it_was_ready_ends_the_wait_for_the_others(spawn: Spawn) -> None:
    dying, waiting = spawn("ready_then_aborts"), spawn("never")
    with pytest.raises(StageError, match=r"aborted \(SIGABRT\)") as caught:
        await_ready([dying, waiting], PATIENCE)
    assert "assertion failed: il < n_layer" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("number", "cause", "words"),
    [
        (signal.SIGKILL, Cause.SIGNALLED, "was killed by SIGKILL"),
        (signal.SIGABRT, Cause.ABORTED, "aborted (SIGABRT)"),
        (signal.SIGTERM, Cause.SIGNALLED, "was killed by SIGTERM"),
        (
            signal.SIGBUS,
            Cause.UNREADABLE_FILE,
            "was ended by the kernel (SIGBUS): a file that it reads its weights from shrank or cannot be read",
        ),
    ],
)
def test_death_by_a_signal_is_seen_through_the_pidfd(spawn: Spawn, number: int, cause: Cause, words: str) -> None:
    process = spawn("ready")
    await_ready([process], PATIENCE)
    os.kill(process.pid, number)
    ending = process.wait(PATIENCE)
    assert ending is not None
    assert ending.cause is cause
    assert str(ending) == words
    assert words in process.death(ending).what


def test_one_that_ignores_the_request_is_killed(spawn: Spawn) -> None:
    process = spawn("ignores_everything")
    await_ready([process], PATIENCE)
    ending = process.stop(0.05)
    assert ending.signal == "SIGKILL"
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_suspended_one_is_recognised_and_killed(spawn: Spawn) -> None:
    process = spawn("ready")
    await_ready([process], PATIENCE)
    assert not process.stopped
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert process.stopped
    assert process.stop(PATIENCE).signal == "SIGKILL"


def test_stopping_twice_and_stopping_the_dead_do_no_harm(spawn: Spawn) -> None:
    process = spawn("aborts")
    first = process.wait(PATIENCE)
    assert process.stop(0.0) == first
    assert process.stop(0.0) == first


def test_it_inherits_no_descriptor_and_nothing_that_bends_it(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "GRPC_VERBOSITY", "OMP_NUM_THREADS", "GGML_SOMETHING"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("DGR_KEPT", "1")
    spawn("ready")
    process = spawn("shows_itself")
    await_ready([process], PATIENCE)
    assert process.log is not None
    shown = json.loads(process.log.read_text())
    assert shown["descriptors"] == []
    assert shown["group"] is True
    assert "DGR_KEPT" in shown["environment"]
    assert not {"http_proxy", "GRPC_VERBOSITY", "OMP_NUM_THREADS", "GGML_SOMETHING"} & set(shown["environment"])


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_program_that_cannot_be_executed(tmp_path: Path, mode: int | None) -> None:
    program = tmp_path / "dgr-worker"
    if mode is not None:
        program.write_bytes(b"not a program")
        program.chmod(mode)
    with pytest.raises(BuildError, match="cannot be started") as caught:
        ServedProcess.spawn("stage 0", [str(program)], log=tmp_path / "log")
    assert caught.value.where == str(program)


def test_a_machine_without_room_for_another_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StageError, match="Too many open files"):
            ServedProcess.spawn("stage 0", [sys.executable, str(PROGRAM), "ready"], log=None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_death_of_the_supervisor_ends_the_child(tmp_path: Path) -> None:
    """kill -9 of the parent: the kernel closes the lifeline, and the helper ends by it."""
    script = f"""
import sys
from pathlib import Path
from dgrctl.runtime.process import ServedProcess, await_ready
command = [sys.executable, "-I", "-S", {str(PROGRAM)!r}, "ready"]
process = ServedProcess.spawn("stage", command, log=Path({str(tmp_path / "log")!r}))
await_ready([process], {PATIENCE})
print(process.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert dies(child)
        finally:
            os.close(child)
