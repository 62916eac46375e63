"""SIGTERM and SIGHUP end a command as an interrupt does: by way of its clean-up, so that nothing it started is left behind.

Code that must not be broken off in the middle (a library's, around its own locks) takes its turn in :func:`unbroken`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

# What shells add to a signal's number.
_EXIT_BASE = 128
_AGAIN_SECONDS = 0.01


@contextlib.contextmanager
def orderly_termination() -> Iterator[None]:
    """Turns the first of the two signals into SystemExit with the exit code that shells use, for the block.

    Further ones change nothing: timeout(1) and closing terminals send several at once, and one that broke into the clean-up
    could leave it waiting for a lock of its own. A signal that somebody ignores (nohup) or handles already stays as it is;
    outside the main thread nothing changes.

    A signal, an interrupt too, that comes while Python runs a finalizer (gRPC's objects have them) is delivered again right after
    it: Python can only print what is raised there, and the command would go on as if nobody had asked it to end.
    """

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        for each in taken:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(_EXIT_BASE + number)

    def again(lost: sys.UnraisableHookArgs) -> None:
        number = _number(lost.exc_value)
        if number is None:
            found(lost)
            return
        if number in taken:
            signal.signal(number, end)
        threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number)).start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    found = sys.unraisablehook
    for number in taken:
        signal.signal(number, end)
    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = found
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _number(error: BaseException | None) -> int | None:
    """The signal that became ``error``, if one did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > _EXIT_BASE:
        return error.code - _EXIT_BASE
    return None


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
