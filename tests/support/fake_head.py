"""A previous stage made of Python, so that a real tail can be sent what no worker would send it."""

from __future__ import annotations

import contextlib
import queue
import secrets
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
from dgr.v1 import common_pb2, stage_pb2, stage_pb2_grpc, worker_pb2

# How long a test waits for an event before it calls it missing. Nothing is measured against it.
PATIENCE = 60.0

_UNLIMITED = -1  # what is too large is for the tail to refuse


class _Returns(stage_pb2_grpc.StageServicer):
    """Where the tail delivers results."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[stage_pb2.ReturnRequest] = queue.Queue()

    def Return(  # noqa: N802 - the name is the contract's
        self, request_iterator: Iterator[stage_pb2.ReturnRequest], context: grpc.ServicerContext
    ) -> Iterator[stage_pb2.ReturnResponse]:
        del context
        with contextlib.suppress(grpc.RpcError):
            for message in request_iterator:
                self.arrived.put(message)
        yield from ()


class FakeHead:
    """One Forward stream to a tail, and the server that its results come to.

    Args:
        address: The tail's.
        tail: What it says of itself.
    """

    def __init__(self, address: str, tail: worker_pb2.DescribeResponse) -> None:
        self.tail = tail
        self.address = address
        self._returns = _Returns()  # type: ignore[abstract]
        # As workers do: their peers ping each other every second.
        patient = [("grpc.http2.max_ping_strikes", 0), ("grpc.http2.min_ping_interval_without_data_ms", 500)]
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4), options=patient)
        stage_pb2_grpc.add_StageServicer_to_server(self._returns, self._server)
        self.own_address = "127.0.0.1:{}".format(self._server.add_insecure_port("127.0.0.1:0"))
        self._server.start()
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", _UNLIMITED)])
        self._outgoing: queue.Queue[stage_pb2.ForwardRequest | None] = queue.Queue()
        self._refusals = stage_pb2_grpc.StageStub(self._channel).Forward(iter(self._outgoing.get, None))

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()
        self._server.stop(None).wait()

    def open_session(self, *, epoch: int = 1, name: str | None = None, **changes: object) -> stage_pb2.OpenSession:
        """An OpenSession that the tail admits, unless ``changes`` spoil it. Not sent yet."""
        begin, end = self.tail.range.begin, self.tail.range.end
        stages = [
            common_pb2.RouteStage(address=self.own_address, range=common_pb2.LayerRange(begin=0, end=begin)),
            common_pb2.RouteStage(address=self.address, range=common_pb2.LayerRange(begin=begin, end=end)),
        ]
        fields: dict[str, object] = {
            "session": common_pb2.SessionKey(route_session_id=name or secrets.token_hex(8), route_epoch=epoch),
            "stages": stages,
            "stage_index": 1,
            "return_address": self.own_address,
            "max_positions": 16,
            "compatibility": dict(self.tail.compatibility),
        }
        return stage_pb2.OpenSession(**{**fields, **changes})  # type: ignore[arg-type]

    def frame(self, session: common_pb2.SessionKey, *, rows: int = 1, **changes: object) -> stage_pb2.BoundaryFrame:
        """The first frame of a session, a prefill of ``rows`` small finite rows, unless ``changes`` spoil it.

        The checksum is made after ``payload`` was changed, so that a wrong payload is refused for what it is.
        """
        values = np.linspace(-1, 1, rows * self.tail.streams * self.tail.width, dtype="<f4")
        payload = changes.pop("payload", values.tobytes())
        assert isinstance(payload, bytes)
        fields: dict[str, object] = {
            "schema_version": 1,
            "session": session,
            "step": 0,
            "phase": common_pb2.PHASE_PREFILL,
            "outputs": common_pb2.OUTPUT_ROWS_LAST,
            "chunk_rows": rows,
            "row_begin": 0,
            "positions": range(rows),
            "token_ids": [0] * rows if self.tail.boundary_token_ids else [],
            "adapter": self.tail.adapter,
            "dtype": stage_pb2.DTYPE_F32,
            "streams": self.tail.streams,
            "width": self.tail.width,
            "payload": payload,
            "checksum": zlib.crc32(payload),
        }
        return stage_pb2.BoundaryFrame(**{**fields, **changes})  # type: ignore[arg-type]

    def send(self, message: stage_pb2.OpenSession | stage_pb2.BoundaryFrame | stage_pb2.CloseSession) -> None:
        match message:
            case stage_pb2.OpenSession():
                self._outgoing.put(stage_pb2.ForwardRequest(open=message))
            case stage_pb2.BoundaryFrame():
                self._outgoing.put(stage_pb2.ForwardRequest(frame=message))
            case stage_pb2.CloseSession():
                self._outgoing.put(stage_pb2.ForwardRequest(close=message))

    def send_nothing_known(self) -> None:
        self._outgoing.put(stage_pb2.ForwardRequest())

    def result(self) -> stage_pb2.ReturnRequest:
        """The next message that the tail returned."""
        return self._returns.arrived.get(timeout=PATIENCE)

    def refusal(self) -> stage_pb2.ForwardResponse:
        """The next failure that the tail told this stage; raises grpc.RpcError where it ended the stream instead."""
        return next(self._refusals)

    def opened(self, **changes: object) -> common_pb2.SessionKey:
        """Opens a session and waits until the tail has admitted it."""
        message = self.open_session(**changes)  # type: ignore[arg-type]
        self.send(message)
        answer = self.result()
        assert answer.HasField("ready")
        assert answer.session == message.session
        return message.session
