"""Faults that would go unnoticed: each is made here, on a real stage of DeepSeek V4, and shown to be refused or found.

They were all met with llama.cpp before the first stage ran: a batch that lacks something is computed from what the call before
left behind, a wrong order or wrong tokens give numbers like any others, and what is not a number travels on.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from dgr.v1 import common_pb2, worker_pb2
from fake_head import FakeHead
from token_parity import Rig, as_prompt, token_prompt

from dgrctl.artifacts.synth.deepseek4 import DeepSeek4
from dgrctl.artifacts.synth.writer import PlannedTensor, write_set
from dgrctl.certify.bits import Bits, Tally, as_bits
from dgrctl.certify.observe import observe
from dgrctl.certify.parity_set import ReferenceOracle
from dgrctl.certify.plan import OutputMode
from dgrctl.errors import InputError, StageError
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.route import LocalRoute, new_session

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.artifacts.local import LocalModel

CUT = 2  # inside the hash-routed layers
PROMPT = token_prompt(24)


@dataclass(frozen=True)
class Scene:
    """A tail after a head that was made of Python, and what the whole model computes for the prompt."""

    head: FakeHead
    residual: Bits  # at the cut
    logits: Bits  # of every position

    def send(self, **changes: object) -> common_pb2.SessionKey:
        """The prompt as one frame of a new session, changed."""
        session = self.head.opened(max_positions=len(PROMPT), logits=True)
        fields: dict[str, object] = {"token_ids": PROMPT, "payload": self.residual.tobytes()} | changes
        self.head.send(self.head.frame(session, rows=len(PROMPT), outputs=common_pb2.OUTPUT_ROWS_ALL, **fields))
        return session

    def answer(self) -> Tally:
        """The tail's logits held against the whole model's."""
        values = b""
        while not (message := self.head.result()).HasField("result"):
            values += message.logits.values
        tally = Tally()
        tally.add(as_bits(values, self.head.tail.vocabulary), self.logits)
        return tally

    def refusal(self, session: common_pb2.SessionKey) -> str:
        """Why the tail refused the frame; nothing of the session was computed."""
        refusal = self.head.refusal()
        assert refusal.session == session
        assert refusal.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        return refusal.error.message


@pytest.fixture(scope="module")
def rig(fixture_rig: Rig) -> Rig:
    return fixture_rig.executing(ubatch=32, context=128, sessions=16)


@pytest.fixture(scope="module")
def model(fixture_models: FixtureModels) -> LocalModel:
    return fixture_models.deepseek4(weights="f16")


@pytest.fixture(scope="module")
def route(rig: Rig, model: LocalModel) -> Iterator[LocalRoute]:
    with rig.route(model, CUT) as running:
        yield running


@pytest.fixture(scope="module")
def truth(rig: Rig, model: LocalModel, route: LocalRoute, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bits, Bits]:
    """The prompt's residual at the cut and its logits, by the whole model in the unpatched upstream."""
    plan = rig.plan(PROMPT, OutputMode.ALL, decode_steps=0, stages=2)
    residual, logits = b"", b""
    folder = tmp_path_factory.mktemp("rows")
    with contextlib.closing(observe(route, plan, as_prompt(PROMPT), folder)) as observation, rig.reference(model) as reference:
        for answer in ReferenceOracle(reference).replay(observation.calls[0], [CUT]):
            residual += answer.residual.values
            logits += answer.logits.values
    head = route.stages[0].description
    return as_bits(residual, head.streams * head.width), as_bits(logits, head.vocabulary)


@pytest.fixture
def scene(route: LocalRoute, truth: tuple[Bits, Bits]) -> Iterator[Scene]:
    tail = route.stages[-1]
    with contextlib.closing(FakeHead(tail.address, tail.description)) as head:
        yield Scene(head, *truth)


def test_the_prompt_as_it_should_be_gives_the_whole_models_bits(scene: Scene) -> None:
    scene.send()
    found = scene.answer()
    assert (found.differing, found.compared) == (0, len(PROMPT) * 256)


def test_rows_in_another_order_are_found_by_the_comparison(scene: Scene) -> None:
    """As the rows of an ubatch may be: nothing about the frame shows it, so only the bits can."""
    order = [*range(1, len(PROMPT), 2), *range(0, len(PROMPT), 2)]
    scene.send(payload=scene.residual[order].tobytes())
    assert scene.answer().differing > 0


def test_a_stage_without_token_ids_is_refused(scene: Scene) -> None:
    """Upstream would take the residual for an image then, and route no layer by hash."""
    session = scene.send(token_ids=[])
    assert "token_ids has 0 entries, expected 24" in scene.refusal(session)


def test_token_ids_outside_the_vocabulary_are_refused(scene: Scene) -> None:
    for wrong in (-1, 256):
        session = scene.send(token_ids=[*PROMPT[:-1], wrong])
        assert "outside the vocabulary of 256" in scene.refusal(session)


def test_other_token_ids_are_found_by_the_comparison(scene: Scene) -> None:
    """The layers after the cut look at them: the same residual gives other logits."""
    scene.send(token_ids=[(token + 1) % 256 for token in PROMPT])
    assert scene.answer().differing > 0


def test_tokens_without_a_residual_are_refused(scene: Scene) -> None:
    session = scene.send(payload=b"")
    assert "payload has 0 bytes" in scene.refusal(session)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800000, 0xFF800000])
def test_what_is_not_a_finite_number_is_refused(scene: Scene, bits: int) -> None:
    spoilt = scene.residual.tobytes()[:-4] + struct.pack("<I", bits)
    session = scene.send(payload=spoilt, checksum=zlib.crc32(spoilt))
    assert "not finite" in scene.refusal(session)


def test_a_stream_too_few_is_refused(scene: Scene) -> None:
    streams = scene.head.tail.streams
    rows = scene.residual.reshape(len(PROMPT), streams, -1)
    session = scene.send(streams=streams - 1, payload=rows[:, :-1].tobytes())
    assert "shape is 3 x" in scene.refusal(session)


def test_a_residual_that_a_stage_makes_of_bad_weights_stops_there(rig: Rig, model: LocalModel, tmp_path: Path) -> None:
    """A weight that is not a number in layer 5 of the middle stage: neither the tail nor the client sees any of it."""
    spoilt = changed(model, tmp_path, lambda tensor: not_a_number(tensor) if tensor.name == "blk.5.ffn_norm.weight" else tensor)
    with rig.route(spoilt, CUT, 6) as route, pytest.raises(StageError, match=r"stage 1 .* not finite") as caught:
        list(route.generate(as_prompt(PROMPT), max_tokens=2))
    assert route.stages[1].address in (caught.value.where or "")


def test_logits_that_the_tail_makes_of_bad_weights_stop_there(rig: Rig, model: LocalModel, tmp_path: Path) -> None:
    spoilt = changed(model, tmp_path, lambda tensor: not_a_number(tensor) if tensor.name == "output_norm.weight" else tensor)
    with rig.route(spoilt, CUT) as route, pytest.raises(StageError, match=r"stage 1 .* not finite"):
        list(route.generate(as_prompt(PROMPT), max_tokens=2))


@pytest.mark.parametrize(("layers", "lacking"), [((0, 4), 0), ((4, 8), 5), ((0, 8), 0)])
def test_a_truncated_file_is_not_taken_for_one_of_the_prediction_layer(
    rig: Rig, model: LocalModel, layers: tuple[int, int], lacking: int, tmp_path: Path
) -> None:
    """Upstream takes a file without its first layer for one that holds the MTP layer alone, and loads the rest as optional.

    A stage would then start with whatever of its layers is there, and die of the first request.
    """
    gone = {"blk.0.attn_norm.weight", "blk.5.attn_norm.weight"}
    truncated = changed(model, tmp_path, lambda tensor: None if tensor.name in gone else tensor)
    alone = LocalRoute(rig.layout, rig.recipe, truncated, rig.build, [LayerRange(*layers)])
    with pytest.raises(InputError) as caught, alone:
        pass
    assert f"tensor 'blk.{lacking}.attn_norm.weight' not found" in caught.value.what


def test_a_request_for_multi_token_prediction_is_refused_by_name(route: LocalRoute) -> None:
    request = worker_pb2.GenerateRequest(
        session=new_session(),
        stages=[stage.wire for stage in route.stages],
        prompt=as_prompt(PROMPT),
        max_tokens=2,
        prefill_window=1,
        logits=common_pb2.OUTPUT_ROWS_NONE,
        mtp_draft_tokens=1,
    )
    refused = pytest.raises(InputError, match=r"multi-token prediction \(MTP\) is reserved and off")
    with refused, route.client.generate(request) as stream:
        list(stream)
    assert list(route.generate(as_prompt(PROMPT), max_tokens=2))


def test_a_stage_that_is_asked_for_multi_token_prediction_refuses_it_too(scene: Scene) -> None:
    scene.head.send(scene.head.open_session(mtp_draft_tokens=1))
    refusal = scene.head.refusal()
    assert refusal.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "(MTP)" in refusal.error.message


Change = Callable[[PlannedTensor], PlannedTensor | None]


def changed(model: LocalModel, folder: Path, change: Change) -> LocalModel:
    """``model`` with every tensor changed or left out, in another file under the same name and digest."""
    synthesis = model.manifest.synthesis
    assert synthesis is not None
    fixture = DeepSeek4(**synthesis.arguments)  # type: ignore[arg-type]
    tensors = [made for tensor in fixture.tensors() if (made := change(tensor)) is not None]
    return replace(model, parts=tuple(write_set(folder, "changed", 1, fixture.pairs(), tensors)))


def not_a_number(tensor: PlannedTensor) -> PlannedTensor:
    values = np.frombuffer(tensor.make(), dtype="<f4").copy()
    values[3] = np.nan
    return replace(tensor, make=values.tobytes)
