"""Real helper processes for the tests of supervision."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervision import PROGRAM, Spawn

from dgrctl.runtime.process import ServedProcess


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts served_program.py with a behaviour; whatever it does, it is gone after the test."""
    with contextlib.ExitStack() as stack:
        count = 0

        def start(behaviour: str, *, isa: str | None = None) -> ServedProcess:
            nonlocal count
            count += 1
            command = [sys.executable, "-I", "-S", str(PROGRAM), behaviour]
            process = ServedProcess.spawn("stage 1 (layers 15:30)", command, log=tmp_path / f"stage-{count}.log", isa=isa)
            stack.callback(process.stop, 0.0)
            return process

        yield start
