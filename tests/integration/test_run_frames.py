"""What a stage is sent is checked in full before the engine sees it; nothing refused harms a session that is generating."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import msgspec
import pytest
from dgr.v1 import common_pb2, stage_pb2
from fake_head import PATIENCE, FakeHead

from dgrctl.errors import InputError
from dgrctl.runtime.answer import collect

if TYPE_CHECKING:
    from dgrctl.recipes.recipe import Recipe
    from dgrctl.runtime.route import LocalRoute

QUESTION = "Explain why the sky is blue."
TOKENS = 48
CONTEXT = 512

Greedy = Callable[..., tuple[str, list[int]]]
Change = Callable[[FakeHead, common_pb2.SessionKey], stage_pb2.BoundaryFrame]


@pytest.fixture(scope="module")
def route(open_route: Callable[..., LocalRoute], recipe: Recipe) -> Iterator[LocalRoute]:
    """With room for the sessions of earlier tests, which end a moment after their streams."""
    execution = msgspec.structs.replace(recipe.execution, sessions=16, context=CONTEXT)
    with open_route(msgspec.structs.replace(recipe, execution=execution)) as running:
        yield running


@pytest.fixture
def head(route: LocalRoute) -> Iterator[FakeHead]:
    """A stream of its own to the route's real tail."""
    tail = route.stages[-1]
    made = FakeHead(tail.address, tail.description)
    try:
        yield made
    finally:
        made.close()


class Bystander:
    """Another session on the same workers, which generates from before the first bad message until after the last."""

    def __init__(self, route: LocalRoute) -> None:
        self.texts: list[str] = []
        self.failure: BaseException | None = None
        self._route = route
        self._enough = threading.Event()
        self._under_way = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._thread.start()
        assert self._under_way.wait(PATIENCE)
        return self

    def __exit__(self, *error: object) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        prompt = common_pb2.Prompt(text=QUESTION, chat_template=True)
        try:
            while not self._enough.is_set():
                answer = collect(self._route.generate(prompt, max_tokens=TOKENS), lambda _: self._under_way.set())
                self.texts.append(answer.text)
        except BaseException as error:
            self.failure = error
            self._under_way.set()


@pytest.fixture(scope="module")
def bystander(route: LocalRoute, greedy: Greedy) -> Iterator[None]:
    """Generates beside all tests of this module, and must come out right each time."""
    expected = greedy(QUESTION, TOKENS)[0]
    with Bystander(route) as other:
        yield
    assert other.failure is None
    assert other.texts
    assert set(other.texts) == {expected}


pytestmark = pytest.mark.usefixtures("bystander")


def test_a_frame_as_it_should_be_is_computed(head: FakeHead) -> None:
    session = head.opened()
    head.send(head.frame(session, rows=3))
    answer = head.result()
    assert answer.session == session
    assert answer.result.sampled
    assert 0 <= answer.result.token_id < head.tail.vocabulary


def test_fragments_of_one_chunk_are_put_together(head: FakeHead) -> None:
    whole, cut = head.opened(), head.opened()
    head.send(head.frame(whole, rows=4))
    expected = head.result()
    full = head.frame(cut, rows=4)
    row = head.tail.streams * head.tail.width * 4
    for begin in range(4):
        payload = full.payload[begin * row : (begin + 1) * row]
        head.send(head.frame(cut, chunk_rows=4, row_begin=begin, positions=[begin], payload=payload))
    assert head.result().result == expected.result


def changed(**fields: object) -> Change:
    return lambda head, session: head.frame(session, **fields)  # type: ignore[arg-type]


def with_value(bits: int) -> Change:
    """A payload whose last value is not finite."""

    def make(head: FakeHead, session: common_pb2.SessionKey) -> stage_pb2.BoundaryFrame:
        good = head.frame(session).payload
        return head.frame(session, payload=good[:-4] + struct.pack("<I", bits))

    return make


def cut_short(head: FakeHead, session: common_pb2.SessionKey) -> stage_pb2.BoundaryFrame:
    return head.frame(session, payload=head.frame(session).payload[:-1])


def fragment_too_large(head: FakeHead, session: common_pb2.SessionKey) -> stage_pb2.BoundaryFrame:
    rows = 16
    return head.frame(session, rows=rows, payload=b"\0" * (32 * 1024 * 1024))


BAD_FRAMES: dict[str, tuple[Change, str]] = {
    "schema_version": (changed(schema_version=2), "schema_version"),
    "schema_version 0": (changed(schema_version=0), "schema_version"),
    "adapter": (changed(adapter="residual/2"), "adapter"),
    "adapter empty": (changed(adapter=""), "adapter"),
    "dtype": (changed(dtype=stage_pb2.DTYPE_BF16), "dtype"),
    "dtype unspecified": (changed(dtype=stage_pb2.DTYPE_UNSPECIFIED), "dtype"),
    "dtype unknown": (changed(dtype=77), "dtype"),
    "width": (changed(width=1), "shape"),
    "width huge": (changed(width=2**32 - 1), "shape"),
    "streams": (changed(streams=4), "shape"),
    "streams huge": (changed(streams=2**32 - 1), "shape"),
    "step ahead": (changed(step=1), "step"),
    "step huge": (changed(step=2**64 - 1), "step"),
    "chunk of no rows": (changed(chunk_rows=0), "chunk_rows"),
    "chunk huge": (changed(chunk_rows=2**32 - 1), "chunk_rows"),
    "phase": (changed(phase=common_pb2.PHASE_UNSPECIFIED), "phase"),
    "decode of two rows": (changed(rows=2, phase=common_pb2.PHASE_DECODE), "phase"),
    "outputs": (changed(outputs=common_pb2.OUTPUT_ROWS_UNSPECIFIED), "outputs"),
    "outputs unknown": (changed(outputs=9), "outputs"),
    "outputs of all rows without logits": (changed(outputs=common_pb2.OUTPUT_ROWS_ALL), "outputs"),
    "row_begin": (changed(rows=2, row_begin=1, positions=[1], payload=b""), "row_begin"),
    "no positions": (changed(positions=[], payload=b""), "positions"),
    "more positions than the chunk": (changed(positions=[0, 1]), "positions"),
    "a hundred thousand positions": (changed(positions=range(100_000)), "positions"),
    "position gap": (changed(rows=2, positions=[0, 2]), "positions"),
    "position repeated": (changed(rows=2, positions=[0, 0]), "positions"),
    "position late": (changed(positions=[5]), "positions"),
    "position negative": (changed(positions=[-1]), "positions"),
    "positions past admission": (changed(rows=17), "positions"),
    "token ids nobody asked for": (changed(token_ids=[1]), "token_ids"),
    "payload short": (cut_short, "payload"),
    "payload empty": (changed(payload=b""), "payload"),
    "payload long": (changed(payload=b"\0" * 4096), "payload"),
    "payload huge": (fragment_too_large, "payload"),
    "checksum": (changed(checksum=1), "checksum"),
    "not a number": (with_value(0x7FC00000), "not finite"),
    "infinity": (with_value(0xFF800000), "not finite"),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_refused_by_its_first_fault(head: FakeHead, name: str) -> None:
    change, words = BAD_FRAMES[name]
    session = head.opened()
    head.send(change(head, session))
    refusal = head.refusal()
    assert refusal.session == session
    assert refusal.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert refusal.error.stage_index == 1
    assert refusal.error.range == head.tail.range
    assert words in refusal.error.message
    # The stream serves other sessions on, and the bad session's place is given back.
    head.send(stage_pb2.CloseSession(session=session))
    head.send(head.frame(head.opened()))
    assert head.result().result.sampled


def test_a_chunk_that_changes_on_the_way_is_refused(head: FakeHead) -> None:
    session = head.opened()
    full = head.frame(session, rows=2)
    half = full.payload[: len(full.payload) // 2]
    head.send(head.frame(session, chunk_rows=2, positions=[0], payload=half))
    head.send(head.frame(session, chunk_rows=3, row_begin=1, positions=[1], payload=half))
    assert "header" in head.refusal().error.message


def test_what_follows_a_refused_frame_is_dropped(head: FakeHead) -> None:
    session, other = head.opened(), head.opened()
    head.send(head.frame(session, checksum=1))
    head.send(head.frame(session))
    head.send(head.frame(other))
    assert head.refusal().session == session
    assert head.result().session == other


def test_sessions_and_epochs_that_are_not_open(head: FakeHead) -> None:
    session = head.opened(epoch=2)
    unknown = common_pb2.SessionKey(route_session_id="nobody-knows-it", route_epoch=1)
    other_epochs = [common_pb2.SessionKey(route_session_id=session.route_session_id, route_epoch=epoch) for epoch in (0, 1, 3)]
    for key in (unknown, common_pb2.SessionKey(), *other_epochs):
        head.send(head.frame(key))
        refusal = head.refusal()
        assert refusal.session == key
        assert refusal.error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    head.send(head.frame(session))
    assert head.result().result.sampled


def test_a_stale_epoch_is_refused_and_a_larger_one_takes_over(head: FakeHead) -> None:
    session = head.opened(epoch=5)
    for epoch in (4, 5):
        head.send(head.open_session(name=session.route_session_id, epoch=epoch))
        refusal = head.refusal()
        assert refusal.error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        assert "stale" in refusal.error.message
    newer = head.opened(name=session.route_session_id, epoch=6)
    aborted = head.refusal()
    assert aborted.session == session
    head.send(head.frame(session))
    assert head.refusal().session == session
    head.send(head.frame(newer))
    assert head.result().session == newer
    # Even after its end.
    head.send(stage_pb2.CloseSession(session=newer))
    head.send(head.open_session(name=session.route_session_id, epoch=6))
    assert "stale" in head.refusal().error.message


def test_another_stream_cannot_reach_a_session(head: FakeHead, route: LocalRoute) -> None:
    session = head.opened()
    stranger = FakeHead(head.address, head.tail)
    try:
        stranger.send(stranger.frame(session))
        assert stranger.refusal().error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        stranger.send(stage_pb2.CloseSession(session=session))
        stranger.send(stranger.frame(stranger.opened()))
        assert stranger.result().result.sampled
    finally:
        stranger.close()
    head.send(head.frame(session))
    assert head.result().result.sampled


BAD_OPENINGS: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "no session": ({"session": None}, grpc.StatusCode.INVALID_ARGUMENT, "route_session_id"),
    "epoch 0": ({"epoch": 0}, grpc.StatusCode.INVALID_ARGUMENT, "route_epoch"),
    "long name": ({"name": "x" * 129}, grpc.StatusCode.INVALID_ARGUMENT, "route_session_id"),
    "odd name": ({"name": "a\nb"}, grpc.StatusCode.INVALID_ARGUMENT, "route_session_id"),
    "no stages": ({"stages": []}, grpc.StatusCode.INVALID_ARGUMENT, "stage_index"),
    "stage_index": ({"stage_index": 2}, grpc.StatusCode.INVALID_ARGUMENT, "stage_index"),
    "stage_index of another": ({"stage_index": 0}, grpc.StatusCode.FAILED_PRECONDITION, "layers"),
    "stage_index huge": ({"stage_index": 2**32 - 1}, grpc.StatusCode.INVALID_ARGUMENT, "stage_index"),
    "no positions": ({"max_positions": 0}, grpc.StatusCode.INVALID_ARGUMENT, "max_positions"),
    "too many positions": ({"max_positions": 2**32 - 1}, grpc.StatusCode.RESOURCE_EXHAUSTED, f"context = {CONTEXT}"),
    "no compatibility": ({"compatibility": {}}, grpc.StatusCode.FAILED_PRECONDITION, "not compatible"),
}


@pytest.mark.parametrize("name", BAD_OPENINGS)
def test_a_bad_opening_is_refused(head: FakeHead, name: str) -> None:
    changes, code, words = BAD_OPENINGS[name]
    message = head.open_session(**changes)
    head.send(message)
    refusal = head.refusal()
    assert refusal.error.code == code.value[0]
    assert words in refusal.error.message
    assert head.opened()


@pytest.mark.parametrize("field", ["model.sha256", "boundary.wire", "execution.ubatch"])
def test_an_opening_with_another_fingerprint_names_the_field(head: FakeHead, field: str) -> None:
    document = {**head.tail.compatibility, field: "another"}
    head.send(head.open_session(compatibility=document))
    refusal = head.refusal()
    assert refusal.error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert field in refusal.error.message


def test_a_route_that_does_not_fit_is_refused(head: FakeHead) -> None:
    begin, end = head.tail.range.begin, head.tail.range.end
    for ranges in ([(0, begin - 1), (begin, end)], [(0, begin), (begin, end - 1)], [(1, begin), (begin, end)]):
        stages = [
            common_pb2.RouteStage(address=head.own_address, range=common_pb2.LayerRange(begin=first, end=last))
            for first, last in ranges
        ]
        head.send(head.open_session(stages=stages))
        assert head.refusal().error.code in {
            grpc.StatusCode.INVALID_ARGUMENT.value[0],
            grpc.StatusCode.FAILED_PRECONDITION.value[0],
        }


def test_a_head_that_cannot_be_reached_back_is_told(head: FakeHead) -> None:
    head.send(head.open_session(return_address="127.0.0.1:1"))
    refusal = head.refusal()
    assert refusal.error.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert "127.0.0.1:1" in refusal.error.message


def test_a_generation_under_a_key_in_use_is_refused_and_the_first_goes_on(route: LocalRoute, greedy: Greedy) -> None:
    session = common_pb2.SessionKey(route_session_id="in-use", route_epoch=1)
    prompt = common_pb2.Prompt(text=QUESTION, chat_template=True)
    first = route.generate(prompt, max_tokens=12, session=session)
    assert next(first).HasField("accepted")
    with pytest.raises(InputError, match="stale"):
        list(route.generate(prompt, max_tokens=12, session=session))
    pieces = b"".join(response.token.piece for response in first if response.HasField("token"))
    assert pieces.decode() == greedy(QUESTION, 12)[0]


def test_an_unknown_message_ends_the_stream_and_only_it(head: FakeHead, route: LocalRoute) -> None:
    head.send_nothing_known()
    with pytest.raises(grpc.RpcError) as caught:
        head.refusal()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    again = FakeHead(head.address, head.tail)
    try:
        again.send(again.frame(again.opened()))
        assert again.result().result.sampled
    finally:
        again.close()


def test_a_message_over_the_limit_ends_the_stream_and_only_it(head: FakeHead) -> None:
    session = head.opened()
    payload = b"\0" * (65 * 1024 * 1024)
    stranger = FakeHead(head.address, head.tail)
    try:
        stranger.send(head.frame(session, payload=payload, checksum=zlib.crc32(payload)))
        with pytest.raises(grpc.RpcError) as caught:
            stranger.refusal()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    finally:
        stranger.close()
    head.send(head.frame(session))
    assert head.result().result.sampled
