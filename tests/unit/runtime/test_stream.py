"""dgrctl.runtime.client.Stream: messages in order, errors as ours, an end for every reader, and a bound on what is unread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from dgrctl.errors import StageError
from dgrctl.runtime.client import Stream


class Call:
    """A streamed call that sends numbers, then fails, or goes on until it is cancelled."""

    def __init__(self, count: int | None, failure: grpc.RpcError | None = None) -> None:
        self.sent = 0
        self.cancelled = threading.Event()
        self._count = count
        self._failure = failure

    def __iter__(self) -> Iterator[int]:
        while self._count is None or self.sent < self._count:
            if self.cancelled.is_set():
                raise grpc.RpcError("cancelled")
            self.sent += 1
            yield self.sent
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        self.cancelled.set()


def stream(call: Call) -> Stream[int]:
    return Stream(lambda: call, "the worker", "127.0.0.1:1")


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("stream from"):
            thread.join()


def test_messages_come_in_order_and_end() -> None:
    call = Call(100)
    assert list(stream(call)) == list(range(1, 101))
    assert call.cancelled.is_set()


def test_a_failed_call_raises_after_its_messages() -> None:
    messages = iter(stream(Call(3, grpc.RpcError("broken"))))
    assert [next(messages) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(StageError, match="the worker"):
        next(messages)


def test_a_reader_that_stops_bounds_what_is_received() -> None:
    call = Call(None)
    messages = iter(stream(call))
    assert [next(messages) for _ in range(5)] == [1, 2, 3, 4, 5]
    messages.close()  # type: ignore[attr-defined]
    wait_for_threads()
    assert call.cancelled.is_set()
    assert call.sent < 50


def test_cancelling_from_another_thread_ends_a_reader() -> None:
    running = stream(Call(None))
    messages = iter(running)
    assert next(messages) == 1
    thread = threading.Thread(target=running.cancel)
    thread.start()
    with pytest.raises(StageError):
        list(messages)
    thread.join()
    wait_for_threads()
