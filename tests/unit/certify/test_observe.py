"""dgrctl.certify.observe, on a route that keeps to the contract until a test makes it break it."""

from __future__ import annotations

import contextlib
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dgr.v1 import common_pb2, stage_pb2, worker_pb2
from recorded import CUTS, PROMPT, VOCABULARY, WIDTH, Recorded, record

from dgrctl.certify.observe import observe
from dgrctl.certify.parity import compare
from dgrctl.certify.plan import OutputMode
from dgrctl.errors import CertificationVoid, StageError

PROMPT_MESSAGE = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=PROMPT))


@dataclass
class Script:
    """Everything a route sends for one session: to its client, and to the tap of each stage."""

    answers: list[worker_pb2.GenerateResponse]
    taps: list[list[worker_pb2.TapResponse]]
    failure: Exception | None = None
    sessions: list[common_pb2.SessionKey] = field(default_factory=list)


class Tap:
    """Ends with the generation, as a worker's does, or when its block is left."""

    def __init__(self, messages: list[worker_pb2.TapResponse], session: common_pb2.SessionKey, ended: threading.Event) -> None:
        self._messages = messages
        self._session = session
        self._ended = ended

    def __iter__(self) -> Iterator[worker_pb2.TapResponse]:
        for message in self._messages:
            if message.HasField("frame"):
                message.frame.session.CopyFrom(self._session)
            yield message
        self._ended.wait()

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()


class Route:
    """What ``observe`` uses of a route."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._ended = threading.Event()
        description = worker_pb2.DescribeResponse(
            vocabulary=VOCABULARY,
            adapter="residual/1",
            streams=1,
            width=WIDTH,
            compatibility={"boundary.wire": "f32"},
            boundary_token_ids=True,
        )
        self.stages = [SimpleNamespace(index=index, description=description) for index in range(len(script.taps))]
        self.clients = [SimpleNamespace(tap=self._opener(messages)) for messages in script.taps]

    def _opener(self, messages: list[worker_pb2.TapResponse]) -> Callable[[common_pb2.SessionKey], Tap]:
        def tap(session: common_pb2.SessionKey) -> Tap:
            self._script.sessions.append(session)
            return Tap(messages, session, self._ended)

        return tap

    def generate(self, prompt: common_pb2.Prompt, **asked: object) -> Iterator[worker_pb2.GenerateResponse]:
        assert prompt == PROMPT_MESSAGE
        assert asked["session"] in self._script.sessions
        assert (asked["max_tokens"], asked["ignore_end_of_generation"]) == (3, True)
        yield from self._script.answers
        if self._script.failure is not None:
            raise self._script.failure
        self._ended.set()


def script(run: Recorded) -> Script:
    """What a route that did ``run`` sends."""
    answers = [worker_pb2.GenerateResponse(accepted=worker_pb2.Accepted(prompt_token_ids=PROMPT))]
    logits = common_pb2.LogitsRows(
        first_position=run.plan.first_logits_position, rows=len(run.logits), vocabulary=VOCABULARY, values=run.logits.tobytes()
    )
    answers.append(worker_pb2.GenerateResponse(logits=logits))
    for step, token in enumerate(run.sampled):
        answers.append(worker_pb2.GenerateResponse(token=common_pb2.Token(id=token, position=len(PROMPT) + step)))
    finished = common_pb2.Finished(
        reason=common_pb2.FINISH_REASON_MAX_TOKENS, prompt_tokens=len(PROMPT), generated_tokens=len(run.sampled)
    )
    answers.append(worker_pb2.GenerateResponse(finished=finished))
    taps = []
    for stage, calls in enumerate(run.calls):
        messages = []
        for step, call in enumerate(calls):
            messages.append(worker_pb2.TapResponse(call=call))
            if stage < len(CUTS):
                frame = boundary(run.boundaries[CUTS[stage]], step, call.sequences[0])
                messages.append(worker_pb2.TapResponse(frame=frame))
        taps.append(messages)
    return Script(answers, taps)


def boundary(rows: np.ndarray, step: int, call: common_pb2.SequenceRows) -> stage_pb2.BoundaryFrame:
    positions = list(call.positions)
    payload = rows[positions].tobytes()
    return stage_pb2.BoundaryFrame(
        schema_version=1, step=step, chunk_rows=len(positions), positions=positions, token_ids=call.token_ids,
        adapter="residual/1", dtype=stage_pb2.DTYPE_F32, streams=1, width=WIDTH, payload=payload, checksum=zlib.crc32(payload),
    )  # fmt: skip


@pytest.mark.parametrize("mode", list(OutputMode))
def test_what_a_route_did_is_recorded_and_agrees(tmp_path: Path, mode: OutputMode) -> None:
    run = record(mode)
    with contextlib.closing(observe(Route(script(run)), run.plan, PROMPT_MESSAGE, tmp_path)) as observation:  # type: ignore[arg-type]
        assert compare(run.plan, CUTS, observation, run).identical


def drop_answer(kind: str) -> Callable[[Script], None]:
    def spoil(sent: Script) -> None:
        sent.answers = [answer for answer in sent.answers if answer.WhichOneof("message") != kind]

    spoil.__name__ = f"no_{kind}"
    return spoil


def repeat_end(sent: Script) -> None:
    sent.answers.append(sent.answers[-1])


def early_end(sent: Script) -> None:
    sent.answers.insert(2, sent.answers[-1])


def other_reason(sent: Script) -> None:
    sent.answers[-1].finished.reason = common_pb2.FINISH_REASON_END_OF_GENERATION


def fewer_said(sent: Script) -> None:
    sent.answers[-1].finished.generated_tokens = 2


def other_position(sent: Script) -> None:
    sent.answers[-2].token.position += 1


def logits_from_elsewhere(sent: Script) -> None:
    sent.answers[1].logits.first_position += 1


def logits_of_another_width(sent: Script) -> None:
    sent.answers[1].logits.vocabulary -= 1


def logits_cut_short(sent: Script) -> None:
    sent.answers[1].logits.values = sent.answers[1].logits.values[:-4]


def empty_answer(sent: Script) -> None:
    sent.answers.insert(0, worker_pb2.GenerateResponse())


def frame_from_the_tail(sent: Script) -> None:
    sent.taps[-1].append(sent.taps[0][1])


def opened_twice(sent: Script) -> None:
    sent.taps[0].append(worker_pb2.TapResponse(opened=worker_pb2.TapResponse.Opened()))


def spoilt_frame(sent: Script) -> None:
    sent.taps[0][1].frame.checksum ^= 1


@pytest.mark.parametrize(
    "spoil",
    [
        drop_answer("finished"),
        repeat_end,
        early_end,
        other_reason,
        fewer_said,
        other_position,
        logits_from_elsewhere,
        logits_of_another_width,
        logits_cut_short,
        empty_answer,
        frame_from_the_tail,
        opened_twice,
        spoilt_frame,
    ],
)
def test_a_route_that_breaks_the_contract_voids_the_run(tmp_path: Path, spoil: Callable[[Script], None]) -> None:
    run = record(OutputMode.ALL)
    sent = script(run)
    spoil(sent)
    with pytest.raises(CertificationVoid):
        observe(Route(sent), run.plan, PROMPT_MESSAGE, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["accepted", "token", "logits"])
def test_what_never_came_is_missed_when_it_is_compared(tmp_path: Path, kind: str) -> None:
    run = record(OutputMode.ALL)
    sent = script(run)
    drop_answer(kind)(sent)
    finished = sent.answers[-1].finished
    finished.prompt_tokens, finished.generated_tokens = {
        "accepted": (0, 3), "token": (9, 0), "logits": (9, 3),
    }[kind]  # fmt: skip
    with (
        contextlib.closing(observe(Route(sent), run.plan, PROMPT_MESSAGE, tmp_path)) as observation,  # type: ignore[arg-type]
        pytest.raises(CertificationVoid),
    ):
        compare(run.plan, CUTS, observation, run)


def test_a_route_that_dies_is_reported_as_that(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    sent = script(run)
    sent.answers, sent.failure = sent.answers[:2], StageError("stage 1 was killed by SIGKILL")
    with pytest.raises(StageError, match="SIGKILL"):
        observe(Route(sent), run.plan, PROMPT_MESSAGE, tmp_path)  # type: ignore[arg-type]


def test_an_interrupt_while_a_recorder_starts_is_that_and_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(threading.Thread):
        def start(self) -> None:
            signal.raise_signal(signal.SIGINT)
            super().start()

    before = threading.enumerate()
    monkeypatch.setattr("dgrctl.certify.observe.threading.Thread", Interrupted)
    run = record(OutputMode.ALL)
    with pytest.raises(KeyboardInterrupt):
        observe(Route(script(run)), run.plan, PROMPT_MESSAGE, tmp_path)  # type: ignore[arg-type]
    assert threading.enumerate() == before
