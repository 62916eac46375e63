"""A stage that dies or freezes while ``dgrctl run`` streams is reported as what it was, and no process is left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Stopwatch, Worker, workers_of

TWO, THREE = "smollm2-135m.cpu-2stage", "smollm2-135m.cpu-3stage"
EXIT_STAGE = 10
# What is required of a report, from the death of a stage to the end of dgrctl.
REPORT_SECONDS = 3.0
ENDLESS = ("--raw", "--prompt", "Once upon a time, in a land far away,", "--max-tokens", "1900")


def strike(dgrctl: Any, name: str, stage: int, number: int, errors: Path) -> tuple[str, list[Worker], Worker]:
    """Sends a signal to one worker in the middle of an answer; returns what dgrctl then wrote to stderr."""
    with dgrctl.start("run", "--recipe", name, *ENDLESS, stderr=errors) as process:
        assert process.stdout.read(8)
        with workers_of(process.pid) as workers:
            struck = workers[stage]
            watch = Stopwatch()
            os.kill(struck.pid, number)
            process.stdout.read()
            assert process.wait(PATIENCE if number == signal.SIGSTOP else REPORT_SECONDS) == EXIT_STAGE
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
        while b"Starting the route: done" not in process.stderr.readline():
            pass
        with workers_of(process.pid) as workers:
            os.kill(workers[1].pid, signal.SIGKILL)
            error = json.loads(process.stdout.read())["error"]
        assert process.wait(PATIENCE) == EXIT_STAGE
    assert error["class"] == "stage"
    assert error["exit_code"] == EXIT_STAGE
    assert "SIGKILL" in error["what"]


def test_a_death_during_the_start_ends_the_others(dgrctl: Any) -> None:
    with dgrctl.start("run", "--recipe", THREE, *ENDLESS) as process:
        while b"Starting the route" not in process.stderr.readline():
            pass
        workers: list[Worker] = []
        while not workers:
            with workers_of(process.pid) as found:
                workers = found
                if workers:
                    os.kill(workers[0].pid, signal.SIGKILL)
                    assert process.wait(PATIENCE) == EXIT_STAGE
                    assert not [worker for worker in workers if worker.alive]
        assert b"was killed by SIGKILL" in process.stderr.read()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_worker_outlives_dgrctl(dgrctl: Any, number: int, code: int) -> None:
    with dgrctl.start("run", "--recipe", THREE, *ENDLESS) as process:
        assert process.stdout.read(8)
        with workers_of(process.pid) as workers:
            assert len(workers) == 3
            process.send_signal(number)
            assert process.wait(PATIENCE) == code
            # After kill -9 they end by their lifeline; else dgrctl has waited for them.
            assert all(worker.dies(PATIENCE if number == signal.SIGKILL else 0) for worker in workers)
        assert b"Traceback" not in process.stderr.read()


def test_a_frozen_worker_does_not_outlive_dgrctl_either(dgrctl: Any) -> None:
    """The kernel wakes and hangs up a process group that is orphaned while one of its members is stopped."""
    with dgrctl.start("run", "--recipe", TWO, *ENDLESS) as process:
        assert process.stdout.read(8)
        with workers_of(process.pid) as workers:
            os.kill(workers[1].pid, signal.SIGSTOP)
            process.kill()
            assert all(worker.dies() for worker in workers)
