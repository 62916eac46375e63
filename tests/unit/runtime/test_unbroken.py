"""dgrctl.termination.unbroken: signals wait for the end of a short block."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from dgrctl.termination import orderly_termination, unbroken


def interrupted(done: list[str], *numbers: int, fail: bool = False) -> None:
    """Is sent signals inside an unbroken block, and notes that it went on."""
    with unbroken():
        for number in numbers:
            signal.raise_signal(number)
        done.append("to the end")
        if fail:
            raise ValueError("failed all the same")


@pytest.fixture
def done() -> list[str]:
    return []


def test_an_interrupt_comes_after_the_block(done: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(done, signal.SIGINT)
    assert done == ["to the end"]


def test_an_interrupt_comes_after_a_block_that_fails(done: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted(done, signal.SIGINT, fail=True)
    assert isinstance(caught.value.__context__, ValueError)


def test_the_first_of_several_signals_counts(done: list[str]) -> None:
    with orderly_termination(), pytest.raises(SystemExit) as caught:
        interrupted(done, signal.SIGTERM, signal.SIGINT)
    assert caught.value.code == 143
    assert done == ["to the end"]


def test_blocks_nest(done: list[str]) -> None:
    def outer() -> None:
        with unbroken():
            interrupted(done, signal.SIGINT)
            done.append("to the outer end")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert done == ["to the end", "to the outer end"]


def test_handlers_are_put_back(done: list[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with unbroken():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    interrupted(done)
    assert done == ["to the end"]


@contextlib.contextmanager
def ignoring(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_an_ignored_signal_stays_ignored(done: list[str]) -> None:
    with ignoring(signal.SIGHUP):
        interrupted(done, signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert done == ["to the end"]


def test_other_threads_change_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def run() -> None:
        with unbroken():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
