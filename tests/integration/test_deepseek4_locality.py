"""What crosses between stages of DeepSeek V4, to the last byte: the boundary and its framing, and nothing of any cache."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from byte_proxy import PREFACE, Account, ByteProxy, Connection
from dgr.v1 import stage_pb2
from google.protobuf.message import Message
from token_parity import Rig, as_prompt, token_prompt

from dgrctl.certify.observe import observe
from dgrctl.certify.parity import compare
from dgrctl.certify.parity_set import ReferenceOracle
from dgrctl.certify.plan import OutputMode
from dgrctl.certify.wire_size import FrameFields, frame_size, message_size

if TYPE_CHECKING:
    from fixture_models import FixtureModels

CUTS = (2, 5)
DECODE_STEPS = 40
OPEN_BYTES = 2048  # of a session: its route and compatibility document
CONTROL_BYTES = 4096  # of a connection: HTTP/2's header blocks, settings, pings and windows


def test_every_byte_between_stages_is_accounted_for(
    fixture_rig: Rig, fixture_models: FixtureModels, tmp_path: Path, say: Callable[[object], None]
) -> None:
    rig = fixture_rig.executing(ubatch=32, context=256)
    model = fixture_models.deepseek4(weights="f16")
    plan = rig.plan(token_prompt(140), OutputMode.LAST, decode_steps=DECODE_STEPS, stages=3)
    with contextlib.ExitStack() as stack:
        reference = stack.enter_context(rig.reference(model))
        # The pipes outlive the workers, so that their last words are recorded too.
        with contextlib.ExitStack() as pipes, rig.route(model, *CUTS) as route:
            proxies = [pipes.enter_context(ByteProxy(stage.address)) for stage in route.stages]
            route.stages = [
                dataclasses.replace(stage, address=proxy.address) for stage, proxy in zip(route.stages, proxies, strict=True)
            ]
            observation = stack.enter_context(contextlib.closing(observe(route, plan, as_prompt(plan.tokens), tmp_path)))
        assert compare(plan, CUTS, observation, ReferenceOracle(reference)).identical
        to_head, *to_next = (only(proxy.connections) for proxy in proxies)
        fed = (*plan.tokens, *observation.sampled[:DECODE_STEPS])
        for cut, connection, rows in zip(CUTS, to_next, observation.boundaries, strict=True):
            account = taken_apart(connection.sent, stage_pb2.ForwardRequest, preface=True)
            say(f"to the stage at layer {cut}: {account}")
            # The payload is the residual at this cut, which is the whole model's, of each position once.
            assert b"".join(frame.payload for frame in account.frames) == rows.read(0, len(rows)).tobytes()
            assert account.parts["payload"] == plan.positions * 4 * rows.width
            assert [token for frame in account.frames for token in frame.token_ids] == list(fed)
            assert [position for frame in account.frames for position in frame.positions] == list(range(plan.positions))
            # The frames are as large as the formula says, and the rest is small and of known kinds.
            of_frames = ("payload", "positions", "token_ids", "header")
            assert sum(account.parts[part] for part in of_frames) == sum(map(expected_size, account.frames))
            assert set(account.parts) == {"open", "close", *of_frames}
            assert account.parts["open"] <= OPEN_BYTES
            assert taken_apart(connection.answered, stage_pb2.ForwardResponse, preface=False).parts == {}
        returned = taken_apart(to_head.sent, stage_pb2.ReturnRequest, preface=True)
        say(f"to the head: {returned}")
        assert set(returned.parts) == {"ready", "result", "logits"}
        assert taken_apart(to_head.answered, stage_pb2.ReturnResponse, preface=False).parts == {}


def only(connections: list[Connection]) -> Connection:
    (connection,) = connections
    return connection


def expected_size(frame: stage_pb2.BoundaryFrame) -> int:
    """By the formula of docs/boundary.md."""
    fields = FrameFields(
        session_id=frame.session.route_session_id,
        epoch=frame.session.route_epoch,
        step=frame.step,
        chunk_rows=frame.chunk_rows,
        row_begin=frame.row_begin,
        positions=frame.positions,
        token_ids=frame.token_ids,
        adapter=frame.adapter,
        wire="f32",
        streams=frame.streams,
        width=frame.width,
        checksum=frame.checksum,
    )
    return message_size(frame_size(fields).total)


def taken_apart(stream: bytearray, message_type: type[Message], *, preface: bool) -> Account:
    account = Account()
    account.add(bytes(stream), message_type, preface=preface)
    assert account.total == account.framing + account.control + sum(account.parts.values())
    assert account.control <= CONTROL_BYTES
    return account


def forward(message: stage_pb2.ForwardRequest, extra: bytes = b"") -> bytes:
    """One message as it crosses a new connection; ``extra`` is hidden behind its last field."""
    encoded = message.SerializeToString() + extra
    data = b"\0" + len(encoded).to_bytes(4, "big") + encoded
    return PREFACE + len(data).to_bytes(3, "big") + b"\0\0\0\0\0\1" + data


FRAME = stage_pb2.ForwardRequest(frame=stage_pb2.BoundaryFrame(positions=[0, 300], token_ids=[7, 0], payload=b"\1" * 64))
# Field 99, length-delimited: a cache of 32 bytes in a field that the contract does not have.
HIDDEN = b"\x9a\x06\x20" + b"c" * 32


def test_the_account_of_a_good_stream_adds_up() -> None:
    account = Account()
    account.add(forward(FRAME), stage_pb2.ForwardRequest, preface=True)
    assert account.parts == {"payload": 64, "positions": 3, "token_ids": 2, "header": FRAME.ByteSize() - 69}
    assert account.total == account.framing + account.control + sum(account.parts.values())


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (forward(FRAME, HIDDEN), "of which its fields are"),
        (forward(FRAME)[:-1], "cut off"),
        (forward(FRAME) + b"\0\0\x20\x0b\0\0\0\0\0" + b"c" * 32, "of kind 11"),
        (forward(FRAME) + b"c", "cut off in its header"),
        (forward(FRAME)[1:], "does not begin"),
    ],
    ids=["an unknown field", "a frame cut off", "a frame of another kind", "stray bytes", "another protocol"],
)
def test_bytes_that_are_nothing_known_are_found(stream: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Account().add(stream, stage_pb2.ForwardRequest, preface=True)


def test_a_message_in_an_unknown_message_is_found() -> None:
    """Also where it hides one level deeper."""
    hidden = stage_pb2.ForwardRequest(frame=stage_pb2.BoundaryFrame.FromString(FRAME.frame.SerializeToString() + HIDDEN))
    with pytest.raises(ValueError, match="of which its fields are"):
        Account().add(forward(hidden), stage_pb2.ForwardRequest, preface=True)
