"""A supervised process that the kernel really ends for want of memory is told apart from one that somebody killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from dgrctl.runtime.endings import Cause
from dgrctl.runtime.process import ServedProcess, await_ready

PROGRAM = Path(__file__).parents[1] / "support" / "served_program.py"
MIB = 1024 * 1024


def start(memory_cgroup: Any, tmp_path: Path) -> ServedProcess:
    command = memory_cgroup.joining([sys.executable, "-I", "-S", str(PROGRAM), "eats_memory"])
    process = ServedProcess.spawn("stage 0 (layers 0:15)", command, log=tmp_path / "log")
    await_ready([process], 30.0)
    return process


def test_the_out_of_memory_killer_is_named_with_its_evidence(memory_cgroup: Any, tmp_path: Path) -> None:
    memory_cgroup.limit(48 * MIB)
    process = start(memory_cgroup, tmp_path)
    os.kill(process.pid, signal.SIGUSR1)
    ending = process.wait(60.0)
    process.stop(0.0)
    assert ending is not None
    assert ending.cause is Cause.OUT_OF_MEMORY
    assert ending.signal == "SIGKILL"
    assert ending.evidence == f"memory cgroup counter {memory_cgroup.counter}: oom_kill rose from 0 to 1"
    error = process.death(ending)
    assert "was killed by the out-of-memory killer" in error.what
    assert error.remedy is not None
    assert "memory" in error.remedy


def test_a_kill_by_hand_in_the_same_cgroup_is_no_lack_of_memory(memory_cgroup: Any, tmp_path: Path) -> None:
    memory_cgroup.limit(48 * MIB)
    process = start(memory_cgroup, tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    ending = process.wait(60.0)
    process.stop(0.0)
    assert ending is not None
    assert ending.cause is Cause.SIGNALLED
    assert str(ending) == "was killed by SIGKILL"
