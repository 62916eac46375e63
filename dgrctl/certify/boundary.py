"""Boundary frames of one session, as a tap shows them, checked and put together to rows of binary32 values."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NoReturn

from dgr.v1 import common_pb2, stage_pb2, worker_pb2

from dgrctl.certify.bits import RowSpool, widen_bf16
from dgrctl.errors import CertificationVoid

SCHEMA_VERSION = 1
_DTYPES = {"f32": (stage_pb2.DTYPE_F32, 4), "bf16": (stage_pb2.DTYPE_BF16, 2)}


class BoundaryRecorder:
    """Takes the frames that one stage sent for one session, in order.

    Args:
        folder: Where rows are spooled.
        session: The session's key.
        wire: "f32" or "bf16".
        adapter: Boundary adapter, "residual/1".
        streams: Residual streams of one row.
        width: Values of one stream.
        token_ids: Whether frames carry a token id for each row.
    """

    def __init__(
        self,
        folder: Path,
        session: common_pb2.SessionKey,
        *,
        wire: str,
        adapter: str,
        streams: int,
        width: int,
        token_ids: bool = False,
    ) -> None:
        self.rows = RowSpool(folder, streams * width)
        self._session = session
        self._dtype, self._value_bytes = _DTYPES[wire]
        self._adapter = adapter
        self._shape = (streams, width)
        self._token_ids = token_ids
        self._step = 0
        self._row = 0  # due next within the chunk

    @classmethod
    def of(cls, folder: Path, session: common_pb2.SessionKey, stage: worker_pb2.DescribeResponse) -> BoundaryRecorder:
        """For what this stage says that it sends."""
        return cls(
            folder,
            session,
            wire=stage.compatibility["boundary.wire"],
            adapter=stage.adapter,
            streams=stage.streams,
            width=stage.width,
            token_ids=stage.boundary_token_ids,
        )

    def add(self, frame: stage_pb2.BoundaryFrame) -> None:
        """Takes one fragment.

        Raises:
            CertificationVoid: it is not the one that is due, or not what its own fields say.
        """
        rows = len(frame.positions)
        due = (self._session, self._step, self._row, len(self.rows))
        found = (frame.session, frame.step, frame.row_begin, frame.positions[0] if rows else None)
        if found != due:
            self._refuse(frame, f"holds step, row, position {found[1:]} where {due[1:]} is due")
        if list(frame.positions) != list(range(due[3], due[3] + rows)) or frame.row_begin + rows > frame.chunk_rows:
            self._refuse(frame, f"has positions or rows that do not fit its chunk of {frame.chunk_rows}")
        if len(frame.token_ids) != (rows if self._token_ids else 0):
            self._refuse(frame, f"has {len(frame.token_ids)} token ids for {rows} rows")
        if (frame.schema_version, frame.adapter) != (SCHEMA_VERSION, self._adapter):
            self._refuse(frame, f"is of schema {frame.schema_version}, adapter {frame.adapter!r}")
        if frame.dtype != self._dtype or (frame.streams, frame.width) != self._shape:
            self._refuse(frame, f"has dtype {frame.dtype} and shape {frame.streams} x {frame.width}, not the route's")
        if len(frame.payload) != rows * frame.streams * frame.width * self._value_bytes:
            self._refuse(frame, f"has {len(frame.payload)} bytes for {rows} rows")
        if zlib.crc32(frame.payload) != frame.checksum:
            self._refuse(frame, "does not have the checksum that it states")
        self.rows.append(frame.payload if self._value_bytes == 4 else widen_bf16(frame.payload))
        self._row += rows
        if self._row == frame.chunk_rows:
            self._step, self._row = self._step + 1, 0

    def _refuse(self, frame: stage_pb2.BoundaryFrame, problem: str) -> NoReturn:
        raise CertificationVoid(
            f"a boundary frame {problem}",
            where=f"session {frame.session.route_session_id}, step {frame.step}",
            remedy="read that worker's log; it sends what no stage may accept",
        )
