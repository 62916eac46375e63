"""dgrctl.certify.boundary"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from dgr.v1 import common_pb2, stage_pb2, worker_pb2

from dgrctl.certify.boundary import BoundaryRecorder
from dgrctl.errors import CertificationVoid

SESSION = common_pb2.SessionKey(route_session_id="one", route_epoch=1)
STREAMS, WIDTH = 2, 3


@pytest.fixture(params=["f32", "bf16"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recorder(tmp_path: Path, wire: str) -> Iterator[BoundaryRecorder]:
    description = worker_pb2.DescribeResponse(
        adapter="residual/1", streams=STREAMS, width=WIDTH, compatibility={"boundary.wire": wire}
    )
    recorder = BoundaryRecorder.of(tmp_path, SESSION, description)
    with contextlib.closing(recorder.rows):
        yield recorder


def frame(
    wire: str, step: int, positions: range, *, row_begin: int = 0, chunk_rows: int | None = None
) -> stage_pb2.BoundaryFrame:
    """A frame whose values are the position, which both dtypes hold exactly."""
    values = np.repeat(np.array(positions, dtype="<f4"), STREAMS * WIDTH)
    payload = values.tobytes() if wire == "f32" else (values.view("<u4") >> 16).astype("<u2").tobytes()
    return stage_pb2.BoundaryFrame(
        schema_version=1,
        session=SESSION,
        step=step,
        phase=common_pb2.PHASE_PREFILL,
        chunk_rows=len(positions) if chunk_rows is None else chunk_rows,
        row_begin=row_begin,
        positions=positions,
        adapter="residual/1",
        dtype=stage_pb2.DTYPE_F32 if wire == "f32" else stage_pb2.DTYPE_BF16,
        streams=STREAMS,
        width=WIDTH,
        payload=payload,
        checksum=zlib.crc32(payload),
    )


def test_fragments_become_rows_in_position_order(recorder: BoundaryRecorder, wire: str) -> None:
    recorder.add(frame(wire, 0, range(2), chunk_rows=3))
    recorder.add(frame(wire, 0, range(2, 3), row_begin=2, chunk_rows=3))
    recorder.add(frame(wire, 1, range(3, 4)))
    assert recorder.rows.read(0, 4).view(np.float32)[:, 0].tolist() == [0, 1, 2, 3]


def other_session(frame: stage_pb2.BoundaryFrame) -> None:
    frame.session.route_epoch = 2


def skipped_step(frame: stage_pb2.BoundaryFrame) -> None:
    frame.step = 1


def skipped_row(frame: stage_pb2.BoundaryFrame) -> None:
    frame.row_begin = 1


def skipped_position(frame: stage_pb2.BoundaryFrame) -> None:
    frame.positions[:] = [1, 2]


def gapped_positions(frame: stage_pb2.BoundaryFrame) -> None:
    frame.positions[:] = [0, 2]


def more_rows_than_its_chunk(frame: stage_pb2.BoundaryFrame) -> None:
    frame.chunk_rows = 1


def no_rows(frame: stage_pb2.BoundaryFrame) -> None:
    del frame.positions[:]


def other_schema(frame: stage_pb2.BoundaryFrame) -> None:
    frame.schema_version = 2


def other_adapter(frame: stage_pb2.BoundaryFrame) -> None:
    frame.adapter = "mhc/1"


def other_dtype(frame: stage_pb2.BoundaryFrame) -> None:
    frame.dtype = stage_pb2.DTYPE_BF16 if frame.dtype == stage_pb2.DTYPE_F32 else stage_pb2.DTYPE_F32


def other_shape(frame: stage_pb2.BoundaryFrame) -> None:
    frame.streams, frame.width = frame.width, frame.streams


def token_ids_nobody_asked_for(frame: stage_pb2.BoundaryFrame) -> None:
    frame.token_ids.extend(frame.positions)


def short_payload(frame: stage_pb2.BoundaryFrame) -> None:
    frame.payload = frame.payload[:-2]


def changed_payload(frame: stage_pb2.BoundaryFrame) -> None:
    frame.payload = bytes([frame.payload[0] ^ 1]) + frame.payload[1:]


@pytest.mark.parametrize(
    "spoil",
    [
        other_session,
        skipped_step,
        skipped_row,
        skipped_position,
        gapped_positions,
        more_rows_than_its_chunk,
        no_rows,
        other_schema,
        other_adapter,
        other_dtype,
        other_shape,
        token_ids_nobody_asked_for,
        short_payload,
        changed_payload,
    ],
)
def test_a_frame_that_no_stage_may_accept_voids_the_run(
    recorder: BoundaryRecorder, wire: str, spoil: Callable[[stage_pb2.BoundaryFrame], None]
) -> None:
    spoilt = frame(wire, 0, range(2))
    spoil(spoilt)
    with pytest.raises(CertificationVoid, match="a boundary frame"):
        recorder.add(spoilt)
    assert len(recorder.rows) == 0


def test_a_boundary_with_token_ids_has_one_for_each_row(tmp_path: Path, wire: str) -> None:
    description = worker_pb2.DescribeResponse(
        adapter="residual/1", streams=STREAMS, width=WIDTH, compatibility={"boundary.wire": wire}, boundary_token_ids=True
    )
    recorder = BoundaryRecorder.of(tmp_path, SESSION, description)
    with contextlib.closing(recorder.rows):
        good, bad = frame(wire, 0, range(2)), frame(wire, 1, range(2, 4))
        good.token_ids.extend([7, 7])
        recorder.add(good)
        with pytest.raises(CertificationVoid, match="0 token ids for 2 rows"):
            recorder.add(bad)
        assert len(recorder.rows) == len(good.positions)
