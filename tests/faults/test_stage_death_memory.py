"""Real workers that the kernel ends for want of memory: while they load, and in the middle of an answer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes import PATIENCE, read, workers_of

TWO = "smollm2-135m.cpu-2stage"
EXIT_STAGE = 10
MIB = 1024 * 1024

GREEDY_RECIPE = """
schema = 1
name = "too-large"
model = "smollm2-135m-instruct-q4_1"
lane = "cpu"
[placement]
stages = 1
[boundary]
wire = "f32"
[execution]
threads = 2
context = 8192
sessions = 16
ubatch = 128
flash_attention = true
kv_type_k = "f16"
kv_type_v = "f16"
prefill_window = 1
"""

# Takes memory that cannot be given back, says so, and waits for the end of its standard input.
BALLAST = """
import os, sys
hoard = bytearray(os.urandom(1024) * 1024 * int(sys.argv[1]))
print("full", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def started(dgrctl: Any, cgroup: Any, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = cgroup.joining(dgrctl.command("run", *arguments))
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=dgrctl.layout.root, env=dgrctl.environment,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_a_worker_that_does_not_fit_while_it_loads(dgrctl: Any, memory_cgroup: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "too-large.toml"
    recipe.write_text(GREEDY_RECIPE)
    memory_cgroup.limit(400 * MIB)
    with started(dgrctl, memory_cgroup, "--recipe", str(recipe), "--prompt", "x") as process:
        report = read(process.stderr).decode()
        assert process.wait(PATIENCE) == EXIT_STAGE, report
    assert "stage 0 (layers 0:30) was killed by the out-of-memory killer" in report
    assert f"{memory_cgroup.counter}: oom_kill rose from 0 to 1" in report
    assert "fewer layers, sessions or context" in report


def test_a_worker_that_is_the_victim_in_the_middle_of_an_answer(dgrctl: Any, memory_cgroup: Any) -> None:
    endless = ("--raw", "--prompt", "Once upon a time", "--max-tokens", "1900")
    with started(dgrctl, memory_cgroup, "--recipe", TWO, *endless) as process:
        assert read(process.stdout, 8)
        with workers_of(process.pid) as workers:
            # The kernel takes the process with the highest score; this makes the choice ours.
            Path(f"/proc/{workers[1].pid}/oom_score_adj").write_text("1000")
            memory_cgroup.limit(memory_cgroup.usage + 16 * MIB)
            ballast = memory_cgroup.joining([sys.executable, "-I", "-S", "-c", BALLAST, "32"])
            with subprocess.Popen(ballast, stdin=subprocess.PIPE, stdout=subprocess.PIPE):
                report = read(process.stderr).decode()
                assert process.wait(PATIENCE) == EXIT_STAGE, report
            assert not [worker for worker in workers if worker.alive]
    assert f"stage 1 (layers {workers[1].layers}) was killed by the out-of-memory killer" in report
    # The kernel may take the ballast, too, before the worker's memory has come back.
    assert f"{memory_cgroup.counter}: oom_kill rose from 0 to" in report
