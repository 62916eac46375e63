"""Signals that end a command: none is lost, not even one that comes while Python runs a finalizer."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_A_FINALIZER = """
import os, signal
from dgrctl.termination import orderly_termination

class Finalized:
    def __del__(self):
        signal.raise_signal({number})

with orderly_termination():
    Finalized()
    while True:
        signal.pause()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_a_finalizer_ends_the_command(number: signal.Signals, code: int) -> None:
    script = IN_A_FINALIZER.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr


def test_other_failures_of_finalizers_are_still_told() -> None:
    script = (
        IN_A_FINALIZER.format(number=0)
        .replace("signal.raise_signal(0)", "raise ValueError('told')")
        .replace("signal.pause()", "break")
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert "ValueError: told" in done.stderr
