"""The formula of docs/boundary.md against protobuf's own encoder."""

from __future__ import annotations

import zlib

from dgr.v1 import common_pb2, stage_pb2
from hypothesis import given
from hypothesis import strategies as st

from dgrctl.certify.wire_size import FrameFields, frame_size, message_size

IDS = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789._:-", min_size=1, max_size=128)


@given(
    st.builds(
        lambda rows, first, ids, with_ids, **others: FrameFields(
            positions=range(first, first + rows), token_ids=ids[:rows] if with_ids else (), **others
        ),
        rows=st.integers(1, 40),
        first=st.integers(0, 2**24),
        ids=st.lists(st.integers(0, 2**21), min_size=40, max_size=40),
        with_ids=st.booleans(),
        session_id=IDS,
        epoch=st.integers(1, 2**63),
        step=st.integers(0, 2**40),
        chunk_rows=st.integers(1, 2**16),
        row_begin=st.integers(0, 2**16),
        adapter=st.sampled_from(["residual/1", "deepseek4/1"]),
        wire=st.sampled_from(["f32", "bf16"]),
        streams=st.sampled_from([1, 4]),
        width=st.integers(1, 300),
        checksum=st.integers(0, 2**32 - 1),
    )
)
def test_it_counts_every_byte(fields: FrameFields) -> None:
    size = frame_size(fields)
    frame = stage_pb2.BoundaryFrame(
        schema_version=1,
        session=common_pb2.SessionKey(route_session_id=fields.session_id, route_epoch=fields.epoch),
        step=fields.step,
        phase=common_pb2.PHASE_PREFILL,
        outputs=common_pb2.OUTPUT_ROWS_LAST,
        chunk_rows=fields.chunk_rows,
        row_begin=fields.row_begin,
        positions=fields.positions,
        token_ids=fields.token_ids,
        adapter=fields.adapter,
        dtype=stage_pb2.DTYPE_F32 if fields.wire == "f32" else stage_pb2.DTYPE_BF16,
        streams=fields.streams,
        width=fields.width,
        payload=bytes(size.payload),
        checksum=fields.checksum,
    )
    assert frame.ByteSize() == size.total
    assert stage_pb2.ForwardRequest(frame=frame).ByteSize() == message_size(size.total)


def test_one_byte_more_shows() -> None:
    """What a field for a cache would add could not hide in the formula."""
    payload = bytes(2 * 4)
    fields = FrameFields("s", 1, 0, 1, 0, [0], [], "residual/1", "f32", 1, 2, zlib.crc32(payload))
    frame = stage_pb2.BoundaryFrame(
        schema_version=1,
        session=common_pb2.SessionKey(route_session_id="s", route_epoch=1),
        phase=common_pb2.PHASE_DECODE,
        outputs=common_pb2.OUTPUT_ROWS_LAST,
        chunk_rows=1,
        positions=[0],
        adapter="residual/1",
        dtype=stage_pb2.DTYPE_F32,
        streams=1,
        width=2,
        payload=payload,
        checksum=zlib.crc32(payload),
    )
    assert frame.ByteSize() == frame_size(fields).total
    encoded = frame.SerializeToString() + b"\xfa\x7f\x01\x00"  # an unknown field of one byte
    assert stage_pb2.BoundaryFrame.FromString(encoded).ByteSize() > frame_size(fields).total
