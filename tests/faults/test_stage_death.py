"""A stage that dies or freezes while ``dgrctl run`` streams is reported as what it was, and no process is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Stopwatch, Worker, dies, read, workers_of

TWO, THREE = "smollm2-135m.cpu-2stage", "smollm2-135m.cpu-3stage"
EXIT_STAGE = 10
ENDLESS = ("--raw", "--prompt", "Once upon a time, in a land far away,", "--max-tokens", "1900")


def strike(dgrctl: Any, name: str, stage: int, number: int, errors: Path) -> tuple[str, list[Worker], Worker]:
    """Sends a signal to one worker in the middle of an answer; returns what dgrctl then wrote to stderr."""
    with dgrctl.start("run", "--recipe", name, *ENDLESS, stderr=errors) as process:
        read(process.stdout, 8)
        with workers_of(process.pid) as workers:
            struck = workers[stage]
            watch = Stopwatch()
            os.kill(struck.pid, number)
            read(process.stdout)
            assert process.wait(PATIENCE) == EXIT_STAGE
            watch.show(f"{signal.Signals(number).name} of stage {stage} of {name}, until dgrctl has ended")
            assert not [worker for worker in workers if worker.alive]
            return errors.read_text(), workers, struck


@pytest.mark.parametrize(("name", "stage"), [(TWO, 0), (TWO, 1), (THREE, 0), (THREE, 1), (THREE, 2)])
def test_kill_9_of_any_stage_names_it_and_the_signal(dgrctl: Any, tmp_path: Path, name: str, stage: int) -> None:
    report, _, struck = strike(dgrctl, name, stage, signal.SIGKILL, tmp_path / "stderr")
    assert f"stage {stage} (layers {struck.layers}) was killed by SIGKILL" in report
    assert f"process {struck.pid} at 127.0.0.1:" in report
    assert f"stage-{stage}.log" in report
    assert "Traceback" not in report


@pytest.mark.parametrize(("number", "words"), [(signal.SIGABRT, "aborted (SIGABRT)"), (signal.SIGSEGV, "crashed (SIGSEGV)")])
def test_an_abort_and_a_crash_are_told_apart(dgrctl: Any, tmp_path: Path, number: int, words: str) -> None:
    report, _, struck = strike(dgrctl, TWO, 1, number, tmp_path / "stderr")
    assert f"stage 1 (layers {struck.layers}) {words}" in report


@pytest.mark.parametrize("stage", [0, 1])
def test_a_frozen_stage_is_found_unreachable(dgrctl: Any, tmp_path: Path, stage: int) -> None:
    report, _, struck = strike(dgrctl, TWO, stage, signal.SIGSTOP, tmp_path / "stderr")
    assert f"stage {stage} (layers {struck.layers}) cannot be reached: its process is stopped" in report


def test_the_error_as_json(dgrctl: Any) -> None:
    with dgrctl.start("run", "--json", "--recipe", TWO, *ENDLESS) as process:
        read(process.stderr, until=b"Starting the route: done")
        with workers_of(process.pid) as workers:
            os.kill(workers[1].pid, signal.SIGKILL)
            error = json.loads(read(process.stdout))["error"]
        assert process.wait(PATIENCE) == EXIT_STAGE
    assert error["class"] == "stage"
    assert error["exit_code"] == EXIT_STAGE
    assert "SIGKILL" in error["what"]


def starting(process: Any) -> int:
    """The first worker that dgrctl starts, as soon as there is one."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, f"dgrctl ended with {process.returncode} before it started a worker"
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                if b"--layers" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return int(pid)
    pytest.fail(f"dgrctl started no worker within {PATIENCE:g} s")


def test_a_death_during_the_start_ends_the_others(dgrctl: Any) -> None:
    with dgrctl.start("run", "--recipe", THREE, *ENDLESS) as process:
        first = starting(process)
        with workers_of(process.pid) as workers:
            os.kill(first, signal.SIGKILL)
            assert process.wait(PATIENCE) == EXIT_STAGE
            assert not [worker for worker in workers if worker.alive]
        assert b"was killed by SIGKILL" in read(process.stderr)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_worker_outlives_dgrctl(dgrctl: Any, number: int, code: int) -> None:
    with dgrctl.start("run", "--recipe", THREE, *ENDLESS) as process:
        read(process.stdout, 8)
        with workers_of(process.pid) as workers:
            assert len(workers) == 3
            process.send_signal(number)
            assert process.wait(PATIENCE) == code
            # After kill -9 the kernel ends them; else dgrctl has waited for them.
            assert all(worker.dies(PATIENCE if number == signal.SIGKILL else 0) for worker in workers)
        assert b"Traceback" not in read(process.stderr)


# How dgrctl is started: as the tests are, in a session of its own without a terminal, deaf to hang-ups.
STARTED = {"plain": (), "setsid": ("setsid",), "nohup": ("nohup",)}


@pytest.mark.parametrize("how", STARTED)
@pytest.mark.parametrize("state", ["running", "one stopped", "all stopped"])
def test_no_worker_outlives_a_dgrctl_that_is_killed(dgrctl: Any, how: str, state: str) -> None:
    """A stopped process acts on nothing but SIGKILL, and the kernel sends that."""
    with dgrctl.start("run", "--recipe", TWO, *ENDLESS, before=STARTED[how]) as process:
        read(process.stdout, 8)
        with workers_of(process.pid) as workers:
            assert len(workers) == 2
            for worker in {"running": [], "one stopped": workers[1:], "all stopped": workers}[state]:
                os.kill(worker.pid, signal.SIGSTOP)
            process.kill()
            assert all(worker.dies() for worker in workers), f"a worker lives on: {workers}"


@pytest.mark.parametrize("how", STARTED)
@pytest.mark.parametrize("stopped", [False, True])
def test_no_worker_that_is_starting_outlives_a_dgrctl_that_is_killed(dgrctl: Any, how: str, stopped: bool) -> None:
    """The worker may not have asked the kernel yet."""
    with dgrctl.start("run", "--recipe", TWO, *ENDLESS, before=STARTED[how]) as process:
        first = starting(process)
        pidfd = os.pidfd_open(first)
        try:
            if stopped:
                os.kill(first, signal.SIGSTOP)
            process.kill()
            assert dies(pidfd), f"the worker {first} lives on"
        finally:
            os.close(pidfd)
