"""SIGTERM and SIGHUP end a command as an interrupt does: by way of its clean-up, so that nothing it started is left behind."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def orderly_termination() -> Iterator[None]:
    """Turns the first of the two signals into SystemExit with the exit code that shells use, for the block.

    Further ones change nothing: timeout(1) and closing terminals send several at once, and one that broke into the clean-up
    could leave it waiting for a lock of its own. A signal that somebody ignores (nohup) or handles already stays as it is;
    outside the main thread nothing changes.
    """

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        for each in taken:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
