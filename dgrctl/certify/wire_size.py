"""How many bytes a boundary frame takes, from its fields alone: the formula of docs/boundary.md.

Every byte between stages is accounted for by it, so that bytes of anything else would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_VALUE_BYTES = {"f32": 4, "bf16": 2}


@dataclass(frozen=True)
class FrameFields:
    """What the size of one frame depends on.

    Attributes:
        positions: One a row.
        token_ids: One a row, or none.
        checksum: The payload's CRC-32; 0 takes no bytes.
    """

    session_id: str
    epoch: int
    step: int
    chunk_rows: int
    row_begin: int
    positions: Sequence[int]
    token_ids: Sequence[int]
    adapter: str
    wire: str
    streams: int
    width: int
    checksum: int


@dataclass(frozen=True)
class FrameSize:
    """Bytes of one encoded BoundaryFrame, by what they are for."""

    payload: int
    positions: int
    token_ids: int
    header: int

    @property
    def total(self) -> int:
        return self.payload + self.positions + self.token_ids + self.header


def frame_size(fields: FrameFields) -> FrameSize:
    """Bytes of the frame as protobuf encodes it, without the message around it."""
    payload = len(fields.positions) * fields.streams * fields.width * _VALUE_BYTES[fields.wire]
    positions = sum(varint(position) for position in fields.positions)
    token_ids = sum(varint(token) for token in fields.token_ids)
    session = _text(len(fields.session_id)) + _number(fields.epoch)
    header = (
        _number(1)  # schema_version
        + 1 + varint(session) + session
        + _number(fields.step)
        + 2 + 2  # phase, outputs
        + _number(fields.chunk_rows)
        + _number(fields.row_begin)
        + 1 + varint(positions)
        + (1 + varint(token_ids) if fields.token_ids else 0)
        + _text(len(fields.adapter))
        + 2  # dtype
        + _number(fields.streams)
        + _number(fields.width)
        + 1 + varint(payload)
        + (5 if fields.checksum else 0)
    )  # fmt: skip
    return FrameSize(payload, positions, token_ids, header)


def message_size(frame_bytes: int) -> int:
    """Bytes of the ForwardRequest around a frame of so many bytes; gRPC and HTTP/2 add their own framing."""
    return 1 + varint(frame_bytes) + frame_bytes


def varint(value: int) -> int:
    """Bytes of a non-negative number as a protobuf varint."""
    return max(1, -(-value.bit_length() // 7))


def _number(value: int) -> int:
    return 1 + varint(value) if value else 0


def _text(length: int) -> int:
    return 1 + varint(length) + length
