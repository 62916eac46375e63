"""The compute gate in other hands: who holds it is told within three seconds, and the wait has an end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, read

from dgrctl.layout import Layout

THREE = "smollm2-135m.cpu-3stage"
EXIT_LOCKED = 12
SHORT = ("--raw", "--prompt", "Once upon a time", "--max-tokens", "4")


@pytest.fixture
def gate(layout: Layout) -> Path:
    layout.locks.mkdir(parents=True, exist_ok=True)
    return layout.locks / "compute.gate"


@contextlib.contextmanager
def stranger(gate: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Holds the gate until its standard input is closed."""
    command = ["flock", "--no-fork", str(gate), "sh", "-c", "echo held; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            read(process.stdout, until=b"held\n")
            yield process
        finally:
            process.kill()


def test_the_holder_is_named_and_the_answer_comes_once_it_lets_go(dgrctl: Any, gate: Path) -> None:
    with stranger(gate) as holder, dgrctl.start("run", "--recipe", THREE, *SHORT) as process:
        words = read(process.stderr, until=b"by itself").decode()
        assert f"waiting for process {holder.pid} (cat, running, since " in words
        assert "which holds the compute gate" in words
        holder.kill()
        assert read(process.stdout).strip()
        assert process.wait(PATIENCE) == 0


def test_a_stopped_holder_is_named_as_that(dgrctl: Any, gate: Path) -> None:
    with stranger(gate) as holder:
        holder.send_signal(signal.SIGSTOP)
        with dgrctl.start("run", "--recipe", THREE, *SHORT) as process:
            words = read(process.stderr, until=b"by itself").decode()
            assert f"process {holder.pid} may never let go: it is stopped; kill -CONT {holder.pid}" in words


def test_the_wait_has_an_end_of_its_own_kind(dgrctl: Any, gate: Path) -> None:
    with stranger(gate) as holder, dgrctl.start("run", "--json", "--recipe", THREE, *SHORT, DGR_LOCK_SECONDS="3") as process:
        error = json.loads(read(process.stdout))["error"]
        assert process.wait(PATIENCE) == EXIT_LOCKED
    assert (error["class"], error["exit_code"]) == ("locked", EXIT_LOCKED)
    assert "the compute gate was not free within 3 s" in error["what"]
    assert error["where"] == str(gate)
    assert [each["pid"] for each in error["holders"]] == [holder.pid]
    assert error["holders"][0]["state"] == "running"
    assert error["limit_s"] == 3
