"""SIGTERM and SIGHUP end a command as an interrupt does: by way of its clean-up, so that nothing it started is left behind.

Code that must not be broken off in the middle (a library's, around its own locks) takes its turn in :func:`unbroken`.
"""

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


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Keeps the exceptions of SIGINT, SIGTERM and SIGHUP out of a short block; the first that came is delivered after it.

    Only the main thread runs signal handlers; in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    held = {number: handler for number, handler in handlers.items() if callable(handler) or handler is signal.SIG_DFL}
    for number in held:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
