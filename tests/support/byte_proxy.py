"""A byte pipe between two workers that keeps every byte, and an account of what the bytes were.

Workers speak gRPC, which is HTTP/2 frames (RFC 9113, section 4.1: nine bytes of header, then the payload) with messages behind
a five-byte prefix inside DATA frames. The account takes all of it apart down to single protobuf fields.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from dgr.v1 import stage_pb2
from google.protobuf.message import Message

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS = 0, 1
_KINDS = ("data", "headers", "priority", "reset", "settings", "push", "ping", "goaway", "window_update", "continuation")
_CONTROL = {"headers", "reset", "settings", "ping", "goaway", "window_update"}


@dataclass
class Connection:
    """What one connection carried: from the side that dialled, and back."""

    sent: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)


class ByteProxy:
    """Listens on a port of its own, passes every connection on to ``target`` (host:port) and keeps both directions."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[Connection] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                dialled, _ = self._listener.accept()
                target = socket.create_connection(self._target)
                for one in (dialled, target):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection()
                self._sockets += [dialled, target]
                pumps = [
                    threading.Thread(target=_pump, args=(dialled, target, connection.sent)),
                    threading.Thread(target=_pump, args=(target, dialled, connection.answered)),
                ]
                self._threads += pumps
                self.connections.append(connection)
                for pump in pumps:
                    pump.start()


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(1 << 16):
            kept.extend(block)
            sink.sendall(block)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@dataclass
class Account:
    """Where the bytes of one direction of one connection went. The parts add up to the whole, or :meth:`add` failed.

    Attributes:
        framing: HTTP/2's connection preface and frame headers, and the five bytes before each message.
        control: Payload of HTTP/2 frames that are not DATA: header blocks, settings, pings, windows.
        parts: Bytes of protobuf messages by what they are: "payload", "positions", "token_ids", "header", "open", "close" …
        frames: The boundary frames, in order.
    """

    total: int = 0
    framing: int = 0
    control: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    frames: list[stage_pb2.BoundaryFrame] = field(default_factory=list)

    def add(self, stream: bytes, message_type: type[Message], *, preface: bool) -> None:
        """Takes one direction apart.

        Raises:
            ValueError: a byte that is none of the above: cut-off frames, frames of other kinds, fields that the contract does
                not have, messages of another type.
        """
        self.total += len(stream)
        body = stream
        if preface:
            if not stream.startswith(PREFACE):
                raise ValueError("the connection does not begin as HTTP/2 does")
            body, self.framing = stream[len(PREFACE) :], self.framing + len(PREFACE)
        data = bytearray()
        for kind, payload in _frames(body):
            self.framing += 9
            if kind == "data":
                data += payload
            elif kind in _CONTROL:
                self.control += len(payload)
            else:
                raise ValueError(f"an HTTP/2 frame of kind {kind} with {len(payload)} bytes")
        for encoded in _messages(bytes(data)):
            self.framing += 5
            self._take(message_type.FromString(encoded), len(encoded))

    def _take(self, message: Message, size: int) -> None:
        known = type(message).FromString(message.SerializeToString())
        known.DiscardUnknownFields()
        if known.ByteSize() != size:
            raise ValueError(f"a {message.DESCRIPTOR.name} of {size} bytes, of which its fields are {known.ByteSize()}")
        kind = message.WhichOneof("message")
        if kind == "frame":
            frame = message.frame  # type: ignore[attr-defined]
            self.frames.append(frame)
            for name, bytes_of in _frame_parts(frame).items():
                self._count(name, bytes_of)
                size -= bytes_of
            kind = "header"
        self._count(kind or "empty", size)

    def __str__(self) -> str:
        return f"{self.total:,} bytes = {self.framing:,} framing + {self.control:,} control + {self.parts}"

    def _count(self, part: str, size: int) -> None:
        self.parts[part] = self.parts.get(part, 0) + size


def _frame_parts(frame: stage_pb2.BoundaryFrame) -> dict[str, int]:
    """Bytes of the three parts of a boundary frame that grow with its rows, without their tags and lengths."""
    parts = {"payload": len(frame.payload)}
    for name in ("positions", "token_ids"):
        values = getattr(frame, name)
        parts[name] = sum(max(1, (value.bit_length() + 6) // 7) for value in values)  # varints, none negative
    return parts


def _frames(stream: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(stream):
        if at + 9 > len(stream):
            raise ValueError("an HTTP/2 frame is cut off in its header")
        size = int.from_bytes(stream[at : at + 3], "big")
        kind = stream[at + 3]
        if at + 9 + size > len(stream):
            raise ValueError("an HTTP/2 frame is cut off")
        if kind == DATA and stream[at + 4] & 0x8:
            raise ValueError("a padded DATA frame")
        yield _KINDS[kind] if kind < len(_KINDS) else f"{kind}", stream[at + 9 : at + 9 + size]
        at += 9 + size


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        compressed, size = struct.unpack_from(">BI", data, at)
        if compressed or at + 5 + size > len(data):
            raise ValueError("a message is compressed or cut off")
        yield data[at + 5 : at + 5 + size]
        at += 5 + size
