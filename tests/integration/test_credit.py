"""Generations that wait for their client's credit, on a route and in the reference."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from dgr.v1 import common_pb2, reference_pb2, reference_pb2_grpc, worker_pb2, worker_pb2_grpc

from dgrctl.certify.speed import Generation
from dgrctl.errors import AdmissionError, CertificationVoid, StageError
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute, Route, RunningRoute, new_session

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.layout import Layout
    from dgrctl.recipes.recipe import Recipe

QUESTION = "Name three rivers in Europe."
PROMPT = common_pb2.Prompt(text=QUESTION, chat_template=True)
TOKENS = 24
PATIENCE = 60.0

Greedy = Callable[..., tuple[str, list[int]]]


@dataclass(frozen=True)
class Paced:
    """A generation with credit, on either side."""

    answers: Generator[Any]
    grant: Callable[[int], None]

    def tokens(self, count: int) -> list[int]:
        """The next ``count`` token ids."""
        ids = (answer.token.id for answer in self.answers if answer.HasField("token"))
        return list(itertools.islice(ids, count))

    def rest(self) -> tuple[list[int], common_pb2.Finished]:
        answers = list(self.answers)
        return [answer.token.id for answer in answers if answer.HasField("token")], answers[-1].finished


Start = Callable[..., Paced]


@pytest.fixture(params=["route", "reference"])
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a generation with a credit."""

    def on_route(credit: int, max_tokens: int = TOKENS) -> Paced:
        route: LocalRoute = request.getfixturevalue("route")
        session = new_session()
        answers = route.generate(PROMPT, max_tokens=max_tokens, session=session, credit=credit)
        return Paced(answers, lambda tokens: route.grant(session, tokens))

    def on_reference(credit: int, max_tokens: int = TOKENS) -> Paced:
        reference: LocalReference = request.getfixturevalue("reference")
        stream = reference.client.generate(PROMPT, max_tokens=max_tokens, credit=credit)
        return Paced((answer for answer in stream), reference.client.grant)

    return on_route if request.param == "route" else on_reference


def test_a_generation_goes_as_far_as_its_credit_and_gives_the_same_tokens(start: Start, greedy: Greedy) -> None:
    expected = greedy(QUESTION, TOKENS)[1]
    paced = start(2)
    seen = paced.tokens(2)
    for allowed in (1, 5, 3):
        paced.grant(allowed)
        seen += paced.tokens(allowed)
    paced.grant(TOKENS)  # more than are left
    rest, finished = paced.rest()
    assert seen + rest == expected
    assert finished.generated_tokens == len(expected)


def test_credit_adds_up(start: Start, greedy: Greedy) -> None:
    paced = start(1)
    first = paced.tokens(1)
    for _ in range(TOKENS):
        paced.grant(1)
    assert first + paced.rest()[0] == greedy(QUESTION, TOKENS)[1]


def test_waiting_is_not_decoding(start: Start) -> None:
    """The pause is what is measured: nothing is waited for. It is longer than the prefill, which is not decoding either."""
    pause = 2.0
    began = time.monotonic()
    paced = start(2)
    paced.tokens(2)
    time.sleep(pause)
    paced.grant(TOKENS)
    _, finished = paced.rest()
    assert 0 < finished.decode_us < (time.monotonic() - began - pause) * 1e6


def test_who_leaves_while_waiting_frees_the_place(start: Start, greedy: Greedy, recipe: Recipe) -> None:
    for _ in range(2 * recipe.execution.sessions):
        left = start(1)
        left.tokens(1)
        left.answers.close()
        assert admitted(start) == greedy(QUESTION, TOKENS)[1]


def admitted(start: Start) -> list[int]:
    """Cancelling is told to the head and to the stages one after the other, so the last place may be free a moment later."""
    while True:
        try:
            return start(0).rest()[0]
        except AdmissionError:
            continue


def test_others_are_served_while_one_waits(route: LocalRoute, greedy: Greedy) -> None:
    session = new_session()
    waiting = Paced(route.generate(PROMPT, max_tokens=TOKENS, session=session, credit=1), lambda n: route.grant(session, n))
    first = waiting.tokens(1)
    assert Paced(route.generate(PROMPT, max_tokens=TOKENS), lambda _: None).rest()[0] == greedy(QUESTION, TOKENS)[1]
    waiting.grant(TOKENS)
    assert first + waiting.rest()[0] == greedy(QUESTION, TOKENS)[1]


def test_a_speed_measured_outside_its_turns_is_void(route: LocalRoute) -> None:
    """A generation without credit ran ahead of its turn, while the other side was measured."""
    session = new_session()
    answers = route.generate(PROMPT, max_tokens=TOKENS, session=session, ignore_end_of_generation=True)
    half = Generation("the split", answers, lambda _: None)
    half.prefill()
    while route.client.describe().open_sessions > 0:  # until it has decoded all
        pass
    half.decode(TOKENS - 1)
    with pytest.raises(CertificationVoid, match="it did not wait"):
        half.finish(len(route_prompt(route)), TOKENS)


def route_prompt(route: LocalRoute) -> list[int]:
    """The ids of the prompt."""
    (accepted,) = [answer.accepted for answer in route.generate(PROMPT, max_tokens=1) if answer.HasField("accepted")]
    return list(accepted.prompt_token_ids)


def test_a_grant_that_nobody_waits_for_is_refused(route: LocalRoute, reference: LocalReference) -> None:
    with pytest.raises(StageError, match="no generation of this session and epoch"):
        route.grant(new_session(), 1)
    session = new_session()
    waiting = Paced(route.generate(PROMPT, max_tokens=2, session=session, credit=1), lambda _: None)
    waiting.tokens(1)
    with pytest.raises(StageError, match="no generation of this session and epoch"):
        route.clients[1].grant(session, 1)  # the tail serves the session, but generations are the head's
    waiting.answers.close()
    with pytest.raises(StageError, match="no generation is under way"):
        reference.client.grant(1)


def test_granting_nothing_is_refused(route: LocalRoute, reference: LocalReference) -> None:
    with grpc.insecure_channel(route.stages[0].address) as channel, pytest.raises(grpc.RpcError) as caught:
        worker_pb2_grpc.WorkerStub(channel).Grant(worker_pb2.GrantRequest(session=new_session()), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with grpc.insecure_channel(reference.process.address) as channel, pytest.raises(grpc.RpcError) as caught:
        reference_pb2_grpc.ReferenceStub(channel).Grant(reference_pb2.ReferenceGrantRequest(), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("ways", ["watched", "by address alone"])
def test_a_stage_that_dies_while_one_waits_ends_it(
    layout: Layout, recipe: Recipe, verified_model: LocalModel, verified_build: BuildRecord, ways: str
) -> None:
    ranges = [LayerRange(0, 15), LayerRange(15, 30)]
    with LocalRoute(layout, recipe, verified_model, verified_build, ranges) as owner, ExitStack() as stack:
        route: Route = owner
        if ways == "by address alone":
            route = stack.enter_context(RunningRoute([stage.address for stage in owner.stages]))
        waiting = Paced(route.generate(PROMPT, max_tokens=TOKENS, credit=1), lambda _: None)
        waiting.tokens(1)
        os.kill(owner.processes[1].pid, signal.SIGKILL)
        with pytest.raises(StageError, match="stage 1"):
            waiting.rest()
