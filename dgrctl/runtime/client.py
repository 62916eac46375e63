"""Typed clients of the two programs. Every failure is a DgrError; requests and answers are the wire contract's messages."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import grpc
from dgr.v1 import common_pb2, reference_pb2, reference_pb2_grpc, worker_pb2, worker_pb2_grpc

from dgrctl.errors import StageError
from dgrctl.runtime.statuses import ANSWER_SECONDS, Failure, to_error
from dgrctl.termination import unbroken

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# A peer that is gone or frozen must be found within three seconds, busy or idle.
KEEPALIVE_MS = 1000
KEEPALIVE_TIMEOUT_MS = 1500

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Newer gRPC waits this long for the answer to any ping, a minute by default, whatever the line above says.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
]

# Received and not yet taken, per stream.
_UNREAD_MESSAGES = 16
# How often a stream that brings nothing tells so.
_IDLE_SECONDS = 0.25

Message_co = TypeVar("Message_co", covariant=True)
Message = TypeVar("Message")


class _Call(Protocol[Message_co]):
    """What a stub returns for a streamed answer."""

    def __iter__(self) -> Iterator[Message_co]: ...
    def cancel(self) -> object: ...


class Stream(Generic[Message]):
    """A streamed answer. Iterating raises DgrErrors; :meth:`cancel` ends it from any thread; leaving its block cancels it.

    A thread of its own takes the messages from gRPC and hands them on through queues whose waits are atomic. An interrupt's
    exception that broke into gRPC's own waiting, which is Python code around locks, could leave one of those locked for ever,
    and the clean-up waiting for it. What else of gRPC runs in the main thread is short, and unbroken.

    Args:
        start: Starts the call.

    Attributes:
        idle: Called several times a second while no message comes, from the thread that iterates.
    """

    idle: Callable[[], None] | None = None

    def __init__(self, start: Callable[[], _Call[Message]], title: str, address: str) -> None:
        with unbroken():
            self._call = start()
        self._title = title
        self._address = address
        self._arrived: queue.SimpleQueue[Message | grpc.RpcError | None] = queue.SimpleQueue()
        # One for each message that may wait to be taken: gRPC's flow control has to reach the sender.
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(_UNREAD_MESSAGES):
            self._places.put(None)

    def __iter__(self) -> Iterator[Message]:
        try:
            with unbroken():
                threading.Thread(target=self._receive, name=f"stream from {self._address}", daemon=True).start()
            while (message := self._next()) is not None:
                if isinstance(message, grpc.RpcError):
                    raise to_error(Failure.of(message), title=self._title, address=self._address) from message
                self._places.put(None)
                yield message
        finally:
            self.cancel()

    def _next(self) -> Message | grpc.RpcError | None:
        while self.idle is not None:
            try:
                return self._arrived.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self.idle()
        return self._arrived.get()

    def cancel(self) -> None:
        """Ends the call; on a route the session is closed on every stage."""
        with unbroken():
            self._call.cancel()
        self._places.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cancel()

    def _receive(self) -> None:
        try:
            for message in self._call:
                self._places.get()
                self._arrived.put(message)
        except grpc.RpcError as error:
            self._arrived.put(error)
        finally:
            self._arrived.put(None)


class _Client:
    """One connection; a context manager.

    Args:
        address: host:port.
        title: How errors name the program there: "stage 0 (layers 0:15)", "the reference".
    """

    def __init__(self, address: str, title: str) -> None:
        self.address = address
        self.title = title
        with unbroken():
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)

    def close(self) -> None:
        """Ends the connection and every call on it."""
        with unbroken():
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with unbroken():
                yield
        except grpc.RpcError as error:
            raise to_error(Failure.of(error), title=self.title, address=self.address) from error


class WorkerClient(_Client):
    """Calls one worker."""

    def __init__(self, address: str, title: str) -> None:
        super().__init__(address, title)
        self._worker = worker_pb2_grpc.WorkerStub(self._channel)

    def describe(self) -> worker_pb2.DescribeResponse:
        """What the worker owns and can take.

        Raises:
            StageError: it cannot be reached, or does not answer within 3 s.
            InputError: what listens there is no worker.
        """
        with self._errors():
            return self._worker.Describe(worker_pb2.DescribeRequest(), timeout=ANSWER_SECONDS)

    def generate(self, request: worker_pb2.GenerateRequest) -> Stream[worker_pb2.GenerateResponse]:
        """Starts a generation on the route whose head this worker is. Iterating raises InputError, AdmissionError, StageError."""
        return Stream(lambda: self._worker.Generate(request), self.title, self.address)

    def grant(self, session: common_pb2.SessionKey, tokens: int) -> None:
        """Lets a generation that was started with a credit generate ``tokens`` more, at least 1.

        Raises:
            StageError: no such generation is under way there, or the worker cannot be reached.
        """
        with self._errors():
            self._worker.Grant(worker_pb2.GrantRequest(session=session, tokens=tokens), timeout=ANSWER_SECONDS)

    def tap(self, session: common_pb2.SessionKey) -> Tap:
        """Records a session that is still to start; returns once the worker has said that it listens.

        Raises:
            InputError: the worker was started without ``--allow-probes``.
            StageError: it cannot be reached.
        """
        request = worker_pb2.TapRequest(session=session)
        stream = Stream(lambda: self._worker.Tap(request), self.title, self.address)
        messages = iter(stream)
        first = next(messages, None)
        if first is None or not first.HasField("opened"):
            stream.cancel()
            raise StageError(f"{self.title} did not open the tap", where=self.address, remedy="run the command again")
        return Tap(stream, messages)


class Tap:
    """An opened tap: iterates over decode calls and boundary frames until the session ends; leaving its block ends it."""

    def __init__(self, stream: Stream[worker_pb2.TapResponse], messages: Iterator[worker_pb2.TapResponse]) -> None:
        self._stream = stream
        self._messages = messages

    def __iter__(self) -> Iterator[worker_pb2.TapResponse]:
        return self._messages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.cancel()


class ReferenceClient(_Client):
    """Calls dgr-reference."""

    def __init__(self, address: str, title: str = "the reference") -> None:
        super().__init__(address, title)
        self._reference = reference_pb2_grpc.ReferenceStub(self._channel)

    def describe(self) -> reference_pb2.ReferenceDescribeResponse:
        """The whole model as the reference runs it.

        Raises:
            StageError: it cannot be reached.
        """
        with self._errors():
            return self._reference.Describe(reference_pb2.ReferenceDescribeRequest(), timeout=ANSWER_SECONDS)

    def replay(self, request: reference_pb2.ReplayRequest) -> Stream[reference_pb2.ReplayResponse]:
        """Replays decode calls on fresh state. Iterating raises InputError, AdmissionError, StageError."""
        return Stream(lambda: self._reference.Replay(request), self.title, self.address)

    def generate(
        self, prompt: common_pb2.Prompt, *, max_tokens: int, ignore_end_of_generation: bool = False, credit: int = 0
    ) -> Stream[reference_pb2.ReferenceGenerateResponse]:
        """Greedy generation by the whole model. Iterating raises InputError, AdmissionError, StageError.

        Args:
            credit: Tokens until it waits for :meth:`grant`; 0: it never waits.
        """
        request = reference_pb2.ReferenceGenerateRequest(
            prompt=prompt, max_tokens=max_tokens, ignore_end_of_generation=ignore_end_of_generation, credit=credit
        )
        return Stream(lambda: self._reference.Generate(request), self.title, self.address)

    def grant(self, tokens: int) -> None:
        """Lets the generation under way generate ``tokens`` more, at least 1.

        Raises:
            StageError: none is under way, or the reference cannot be reached.
        """
        with self._errors():
            self._reference.Grant(reference_pb2.ReferenceGrantRequest(tokens=tokens), timeout=ANSWER_SECONDS)
