"""Runs one prompt on a route and records what its client receives and what a tap on every stage shows."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from dgr.v1 import common_pb2, worker_pb2

from dgrctl.certify.bits import RowSpool
from dgrctl.certify.boundary import BoundaryRecorder
from dgrctl.certify.parity import Observation
from dgrctl.certify.plan import DecodeCall, PromptPlan
from dgrctl.errors import CertificationVoid, StageError
from dgrctl.runtime.route import Route, new_session
from dgrctl.termination import unbroken

# A tap ends with its session; one that is still open this long after the client has its last token never will.
_TAP_SECONDS = 30.0


def observe(route: Route, plan: PromptPlan, prompt: common_pb2.Prompt, folder: Path) -> Observation:
    """Generates ``plan.sampled_tokens`` tokens greedily, past any end token, with all taps open.

    Args:
        route: Of workers that allow probes.
        prompt: The text or the tokens that ``plan.tokens`` came from.
        folder: Where rows are spooled; they vanish when the observation is closed.

    Raises:
        CertificationVoid: a message is not the one that is due, or a tap does not end.
        StageError, AdmissionError, InputError: of the route.
        StorageError: the disk is full.
    """
    session = new_session()
    with contextlib.ExitStack() as spools:
        client = _ClientRecorder(plan, RowSpool(folder, route.stages[0].description.vocabulary))
        spools.callback(client.logits.close)
        recorders = []
        for stage in route.stages:
            boundary = None
            if stage is not route.stages[-1]:
                boundary = BoundaryRecorder.of(folder, session, stage.description)
                spools.callback(boundary.rows.close)
            recorders.append(_StageRecorder(boundary))
        _run(route, prompt, session, client, recorders)
        spools.pop_all()
        return Observation(
            prompt_tokens=client.prompt_tokens,
            sampled=tuple(client.sampled),
            calls=tuple(tuple(recorder.calls) for recorder in recorders),
            boundaries=tuple(recorder.boundary.rows for recorder in recorders if recorder.boundary is not None),
            logits=client.logits,
            boundary_token_ids=route.stages[0].description.boundary_token_ids,
        )


def _run(
    route: Route,
    prompt: common_pb2.Prompt,
    session: common_pb2.SessionKey,
    client: _ClientRecorder,
    recorders: Sequence[_StageRecorder],
) -> None:
    """Opens the taps, generates, and waits for the taps' ends. No thread of a recorder is left, whatever fails."""
    with contextlib.ExitStack() as stack:
        for recorder, worker in zip(recorders, route.clients, strict=True):
            stack.callback(recorder.join)  # after the tap has been left
            with _explained(route):
                recorder.start(stack.enter_context(worker.tap(session)))
        plan = client.plan
        answers = route.generate(
            prompt, max_tokens=plan.sampled_tokens, session=session, ignore_end_of_generation=True, logits=plan.mode.wire
        )
        for answer in answers:
            client.add(answer)
        client.finish()
        for recorder in recorders:
            with _explained(route):
                recorder.finish()


@contextlib.contextmanager
def _explained(route: Route) -> Iterator[None]:
    """Says how a stage ended where that is why its tap failed."""
    try:
        yield
    except StageError as error:
        raise route.explain(error) from error


class _StageRecorder:
    """Takes one stage's tap on a thread of its own. ``boundary`` is None on the tail, which sends no frames."""

    def __init__(self, boundary: BoundaryRecorder | None) -> None:
        self.calls: list[DecodeCall] = []
        self.boundary = boundary
        self._thread: threading.Thread | None = None
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def start(self, tap: Iterable[worker_pb2.TapResponse]) -> None:
        thread = threading.Thread(target=self._run, args=(tap,), name="tap")
        with unbroken():  # an interrupt inside would leave a thread that runs and cannot be joined
            thread.start()
            self._thread = thread

    def finish(self) -> None:
        """Waits for the tap's end; raises what befell it."""
        try:
            failure = self._ended.get(timeout=_TAP_SECONDS)
        except queue.Empty:
            raise CertificationVoid(
                f"a tap is still open {_TAP_SECONDS:g} s after its session ended", remedy="read the logs of the workers"
            ) from None
        if failure is not None:
            raise failure

    def join(self) -> None:
        """Waits for the thread, whose tap has ended or was left."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, tap: Iterable[worker_pb2.TapResponse]) -> None:
        try:
            for message in tap:
                self._take(message)
        except BaseException as error:  # raised by finish(), in the thread that waits
            self._ended.put(error)
        else:
            self._ended.put(None)

    def _take(self, message: worker_pb2.TapResponse) -> None:
        kind = message.WhichOneof("message")
        if kind == "call":
            self.calls.append(message.call)
        elif kind == "frame" and self.boundary is not None:
            self.boundary.add(message.frame)
        else:
            raise CertificationVoid(f"a tap shows a message of kind {kind} that this stage cannot have sent")


class _ClientRecorder:
    """Takes the answers of one generation and checks their order."""

    def __init__(self, plan: PromptPlan, logits: RowSpool) -> None:
        self.prompt_tokens: tuple[int, ...] = ()
        self.sampled: list[int] = []
        self.logits = logits
        self.plan = plan
        self._finished: common_pb2.Finished | None = None

    def add(self, answer: worker_pb2.GenerateResponse) -> None:
        kind = answer.WhichOneof("message")
        if self._finished is not None:
            self._refuse(f"{kind} came after the end")
        if kind == "accepted":
            self.prompt_tokens += tuple(answer.accepted.prompt_token_ids)
        elif kind == "token":
            due = len(self.plan.tokens) + len(self.sampled)
            if answer.token.position != due:
                self._refuse(f"a token for position {answer.token.position} came where {due} is due")
            self.sampled.append(answer.token.id)
        elif kind == "logits":
            self._take_logits(answer.logits)
        elif kind == "finished":
            self._finished = answer.finished
        else:
            self._refuse("it sent an empty message")

    def finish(self) -> None:
        """Checks that the generation says that it did what it did."""
        if self._finished is None:
            self._refuse("it ended without a last message")
        said = (self._finished.reason, self._finished.prompt_tokens, self._finished.generated_tokens)
        if said != (common_pb2.FINISH_REASON_MAX_TOKENS, len(self.prompt_tokens), len(self.sampled)):
            self._refuse(f"its last message says (reason, prompt tokens, generated tokens) {said}")

    def _take_logits(self, block: common_pb2.LogitsRows) -> None:
        due = self.plan.first_logits_position + len(self.logits)
        if block.first_position != due or block.vocabulary != self.logits.width:
            self._refuse(f"logits from position {block.first_position}, {block.vocabulary} wide, came where {due} is due")
        if block.rows == 0 or len(block.values) != 4 * block.rows * block.vocabulary:
            self._refuse(f"{len(block.values)} bytes of logits came for {block.rows} rows")
        self.logits.append(block.values)

    def _refuse(self, problem: str) -> NoReturn:
        raise CertificationVoid(
            f"the head does not keep to the contract: {problem}",
            where=f"prompt {self.plan.prompt_id}, outputs {self.plan.mode.value}",
            remedy="read the head's log; this is a fault of the worker, not of the numbers",
        )
