"""SIGTERM and SIGHUP end a real process by way of its clean-up, with the exit codes that shells use."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from dgrctl.termination import orderly_termination

SCRIPT = """
import sys, signal
from dgrctl.termination import orderly_termination
if "ignore" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
with orderly_termination():
    try:
        print("ready", flush=True)
        sys.stdin.read()
        print("to the end", flush=True)
    finally:
        if "linger" in sys.argv:
            print("cleaning up", flush=True)
            sys.stdin.read()
        print("cleaned up", flush=True)
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_cleans_up_first(number: signal.Signals, code: int) -> None:
    with start() as process:
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.read() == b"cleaned up\n"
        assert process.wait() == code


def test_further_signals_do_not_break_into_the_clean_up() -> None:
    with start("linger") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == b"cleaning up\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(b"")
        assert out == b"cleaned up\n"
        assert process.returncode == 143


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    with start("ignore") as process:
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(b"")
        assert out == b"to the end\ncleaned up\n"
        assert process.returncode == 0


def test_handlers_are_given_back_and_other_threads_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with orderly_termination():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    seen: list[object] = []

    def elsewhere() -> None:
        with orderly_termination():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]
