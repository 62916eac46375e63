"""Workers started by hand, routes made of them, and routes that must be refused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import read

TWO, THREE, BF16 = "smollm2-135m.cpu-2stage", "smollm2-135m.cpu-3stage", "smollm2-135m.cpu-2stage-bf16"
QUESTION = "Name three rivers in Europe."
PATIENCE = 60.0
EXIT_INPUT, EXIT_STAGE = 3, 10

Greedy = Callable[..., tuple[str, list[int]]]


@dataclass(frozen=True)
class ByHand:
    """One `dgrctl worker start` that is ready."""

    process: subprocess.Popen[bytes]
    address: str
    pid: int
    layers: list[int]


@contextlib.contextmanager
def worker(dgrctl: Any, recipe: str, stage: int, listen: str = "127.0.0.1:0") -> Iterator[ByHand]:
    arguments = ("worker", "start", "--json", "--recipe", recipe, "--stage", str(stage), "--listen", listen)
    with dgrctl.start(*arguments) as process:
        line = process.stdout.readline()
        assert line, read(process.stderr).decode()
        ready = json.loads(line)
        yield ByHand(process, ready["address"], ready["pid"], ready["layers"])


@pytest.fixture(scope="module")
def pair(dgrctl: Any) -> Iterator[tuple[ByHand, ByHand]]:
    """Head and tail of the 2-stage recipe."""
    with worker(dgrctl, TWO, 0) as head, worker(dgrctl, TWO, 1) as tail:
        yield head, tail


def run(dgrctl: Any, *workers: ByHand, tokens: int = 24) -> subprocess.CompletedProcess[bytes]:
    route = ",".join(one.address for one in workers)
    finished: subprocess.CompletedProcess[bytes] = dgrctl.run(
        "run", "--route", route, "--prompt", QUESTION, "--max-tokens", str(tokens)
    )
    assert b"Traceback" not in finished.stderr
    return finished


def test_a_route_of_running_workers_gives_the_whole_models_text(dgrctl: Any, pair: tuple[ByHand, ByHand], greedy: Greedy) -> None:
    for _ in range(2):
        finished = run(dgrctl, *pair)
        assert finished.returncode == 0, finished.stderr.decode()
        assert finished.stdout.decode() == greedy(QUESTION, 24)[0]
    assert all(one.process.poll() is None for one in pair)


def test_the_wrong_order_is_refused(dgrctl: Any, pair: tuple[ByHand, ByHand]) -> None:
    head, tail = pair
    finished = run(dgrctl, tail, head)
    assert finished.returncode == EXIT_INPUT
    assert b"must begin at layer 0" in finished.stderr
    assert f"{tail.address}: range.begin".encode() in finished.stderr


def test_a_missing_stage_is_refused(dgrctl: Any, pair: tuple[ByHand, ByHand]) -> None:
    finished = run(dgrctl, pair[0])
    assert finished.returncode == EXIT_INPUT
    assert b"the model has 30" in finished.stderr


def test_workers_of_different_recipes_are_refused_with_the_field(dgrctl: Any, pair: tuple[ByHand, ByHand]) -> None:
    with worker(dgrctl, BF16, 1) as stranger:
        finished = run(dgrctl, pair[0], stranger)
    assert finished.returncode == EXIT_INPUT
    assert b"boundary.wire is 'bf16' here and 'f32' there" in finished.stderr
    assert f"{stranger.address}: compatibility.boundary.wire".encode() in finished.stderr


@pytest.mark.parametrize("stage", [0, 1])
def test_a_dead_worker_is_unreachable(dgrctl: Any, pair: tuple[ByHand, ByHand], stage: int) -> None:
    """Nobody here sees its process, so nobody says how it ended."""
    with worker(dgrctl, TWO, stage) as victim:
        route = [victim, pair[1]] if stage == 0 else [pair[0], victim]
        addresses = ",".join(one.address for one in route)
        endless = ("--raw", "--prompt", "Once upon a time", "--max-tokens", "1900")
        with dgrctl.start("run", "--route", addresses, *endless) as process:
            assert read(process.stdout, 8)
            os.kill(victim.pid, signal.SIGKILL)
            read(process.stdout)
            report = read(process.stderr).decode()
            assert process.wait(PATIENCE) == EXIT_STAGE, report
        assert f"stage {stage} (layers {victim.layers[0]}:{victim.layers[1]}) cannot be reached" in report
        assert victim.address in report
        # Who started it by hand is told how it ended.
        assert victim.process.wait(PATIENCE) == EXIT_STAGE
        assert b"was killed by SIGKILL" in read(victim.process.stderr)
        # And a new request is refused as fast.
        finished = run(dgrctl, *route)
        assert finished.returncode == EXIT_STAGE
        assert f"stage {stage}".encode() in finished.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_operator_ends_a_worker(dgrctl: Any, number: int) -> None:
    with worker(dgrctl, TWO, 1) as one:
        one.process.send_signal(number)
        assert one.process.wait(PATIENCE) == 0
        assert not Path(f"/proc/{one.pid}").exists()
        assert b"Traceback" not in read(one.process.stderr)


def test_a_taken_port_is_refused_before_the_model_is_touched(dgrctl: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        arguments = ("worker", "start", "--json", "--recipe", TWO, "--stage", "0", "--listen", address)
        finished = dgrctl.run(*arguments)
    assert finished.returncode == EXIT_STAGE
    assert b"Hashing" not in finished.stderr
    error = json.loads(finished.stdout)["error"]
    assert f"cannot listen on {address}: Address already in use" in error["what"]


def test_two_workers_cannot_share_a_port(dgrctl: Any) -> None:
    with worker(dgrctl, TWO, 1) as one:
        finished = dgrctl.run("worker", "start", "--recipe", TWO, "--stage", "1", "--listen", one.address)
        assert finished.returncode == EXIT_STAGE
        assert b"Address already in use" in finished.stderr


@pytest.mark.parametrize(
    ("stage", "listen", "words"),
    [
        ("2", "127.0.0.1:0", b"has no stage 2"),
        ("-1", "127.0.0.1:0", b"has no stage -1"),
        ("0", "127.0.0.1", b"is not an address"),
        ("0", "no-such-host.invalid:7001", b"cannot be resolved"),
    ],
)
def test_bad_arguments_start_nothing(dgrctl: Any, stage: str, listen: str, words: bytes) -> None:
    finished = dgrctl.run("worker", "start", "--recipe", TWO, f"--stage={stage}", "--listen", listen)
    assert finished.returncode == EXIT_INPUT
    assert words in finished.stderr


def test_listening_beyond_loopback_warns(dgrctl: Any) -> None:
    with worker(dgrctl, TWO, 1, listen="0.0.0.0:0") as one:
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(PATIENCE) == 0
        assert b"nothing on this port is encrypted or authenticated" in read(one.process.stderr)
