"""Parity of one prompt: what a route computed against the reference's replay of the same decode calls, bit by bit.

Order of judgement: first that everything the plan asks for is there, once and in order, and nothing else; then the bits. Lacking
or superfluous data voids a run (there is nothing to judge); differing data fails it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from dgr.v1 import common_pb2, reference_pb2

from dgrctl.certify.bits import Bits, RowSpool, Tally, as_bits, greedy
from dgrctl.certify.plan import DecodeCall, PromptPlan
from dgrctl.certify.trace import trace_problems
from dgrctl.errors import CertificationVoid


class Oracle(Protocol):
    """The whole model by unpatched upstream (dgr-reference), or a recording of it."""

    def replay(self, calls: Sequence[DecodeCall], cuts: Sequence[int]) -> Iterable[reference_pb2.ReplayResponse]:
        """Replays ``calls`` on fresh state: residuals at ``cuts`` and logits, in the order of the calls."""


@dataclass(frozen=True)
class Observation:
    """What one prompt made a route do, as seen by its client and by a tap on each stage.

    ``boundaries`` are the rows that left each stage but the tail, widened to binary32, in position order; ``logits`` the rows
    that reached the client, in position order; ``boundary_token_ids``: whether stages after the head learn the token ids.
    """

    prompt_tokens: tuple[int, ...]
    sampled: tuple[int, ...]
    calls: tuple[tuple[DecodeCall, ...], ...]
    boundaries: tuple[RowSpool, ...]
    logits: RowSpool
    boundary_token_ids: bool = False

    def close(self) -> None:
        """Frees the recorded rows."""
        for spool in (*self.boundaries, self.logits):
            spool.close()


@dataclass
class PromptParity:
    """What the comparison of one prompt found."""

    plan: PromptPlan
    logits: Tally = field(default_factory=Tally)
    boundaries: dict[int, Tally] = field(default_factory=dict)  # by cut
    greedy_differing: int = 0  # rows of logits whose largest value lies elsewhere than the reference's
    tokens_compared: int = 0
    tokens_differing: int = 0

    @property
    def identical(self) -> bool:
        """No bit differs, no value is NaN or infinite, every token is the reference's."""
        return self.tokens_differing == 0 and all(not tally.differing for tally in (self.logits, *self.boundaries.values()))


def compare(
    plan: PromptPlan, cuts: Sequence[int], observation: Observation, oracle: Oracle, *, residuals: bool = True
) -> PromptParity:
    """Judges an observation of ``plan`` on a route whose stages meet at ``cuts``.

    Args:
        residuals: Compare what crossed each cut, too; not every architecture lets the whole model's residual be seen.

    Raises:
        CertificationVoid: rows, calls or tokens are missing, superfluous, or not those that were planned, on either side.
    """
    _require(plan, recorded_problems(plan, cuts, observation))
    compared = tuple(cuts) if residuals else ()
    comparison = _Comparison(plan, compared, observation)
    for response in oracle.replay(observation.calls[0], compared):
        comparison.add(response)
    comparison.finish()
    return comparison.result


def recorded_problems(plan: PromptPlan, cuts: Sequence[int], observation: Observation) -> list[str]:
    """Where an observation does not hold exactly what the plan asks for; empty when it does."""
    problems = []
    if observation.prompt_tokens != plan.tokens:
        problems.append("the head tokenized the prompt into other tokens than the reference")
    problems += trace_problems(plan, observation.calls, observation.sampled, boundary_token_ids=observation.boundary_token_ids)
    if len(observation.boundaries) != len(cuts):
        problems.append(f"boundaries were recorded at {len(observation.boundaries)} cuts instead of {len(cuts)}")
    for cut, rows in zip(cuts, observation.boundaries, strict=False):
        if len(rows) != plan.positions:
            problems.append(f"{len(rows)} rows crossed the cut at layer {cut} instead of {plan.positions}")
    if len(observation.logits) != plan.logits_rows:
        problems.append(f"{len(observation.logits)} rows of logits reached the client instead of {plan.logits_rows}")
    return problems


def _require(plan: PromptPlan, problems: Sequence[str]) -> None:
    if problems:
        raise CertificationVoid(
            "a run did not do what was planned, so there is nothing to compare",
            where=f"prompt {plan.prompt_id}, outputs {plan.mode.value}",
            detail="\n".join(problems[:20]),
            remedy="read the logs of the workers and of the reference; this is a fault of theirs, not of the numbers",
        )


class _Comparison:
    """Takes the reference's rows in the order they must come, compares each block and keeps only the counts."""

    def __init__(self, plan: PromptPlan, cuts: tuple[int, ...], observation: Observation) -> None:
        self.result = PromptParity(plan, boundaries={cut: Tally() for cut in cuts})
        self._plan = plan
        self._observation = observation
        self._rows = dict(zip(cuts, observation.boundaries, strict=False))
        # First row of each decode call, and the end of the last.
        self._begins = [0]
        for call in observation.calls[0]:
            self._begins.append(self._begins[-1] + len(call.sequences[0].positions))

    def add(self, response: reference_pb2.ReplayResponse) -> None:
        """Compares one block of the reference's rows."""
        if response.call_index >= len(self._begins) - 1:
            self._refuse(f"the reference answers for decode call {response.call_index}, which was not asked for")
        kind = response.WhichOneof("message")
        if kind == "residual":
            self._residual(response.call_index, response.residual)
        elif kind == "logits":
            self._logits(response.logits)
        else:
            self._refuse("the reference sent an empty message")

    def finish(self) -> None:
        """Checks that the reference sent every row that was planned."""
        problems = [
            f"the reference sent {tally.rows} rows at the cut at layer {cut} instead of {self._plan.positions}"
            for cut, tally in self.result.boundaries.items()
            if tally.rows != self._plan.positions
        ]
        if self.result.logits.rows != self._plan.logits_rows:
            problems.append(f"the reference sent {self.result.logits.rows} rows of logits instead of {self._plan.logits_rows}")
        if self.result.tokens_compared != self._plan.sampled_tokens:
            problems.append(f"{self.result.tokens_compared} tokens were compared instead of {self._plan.sampled_tokens}")
        _require(self._plan, problems)

    def _residual(self, call_index: int, block: reference_pb2.ResidualRows) -> None:
        tally = self.result.boundaries.get(block.cut)
        if tally is None:
            self._refuse(f"the reference sent a residual at layer {block.cut}, which is not a cut of this route")
        route = self._rows[block.cut]
        if block.streams * block.width != route.width:
            self._refuse(
                f"a row of the reference's residual has {block.streams} x {block.width} values, the route's {route.width}"
            )
        begin = self._begins[call_index] + block.row_begin
        if begin != tally.rows or begin + block.rows > self._begins[call_index + 1]:
            self._refuse(f"the reference sent row {begin} at the cut at layer {block.cut} where row {tally.rows} is due")
        tally.add(route.read(begin, block.rows), self._block(block.values, block.rows, route.width))

    def _logits(self, block: common_pb2.LogitsRows) -> None:
        tally, route = self.result.logits, self._observation.logits
        if block.vocabulary != route.width:
            self._refuse(f"the reference's logits are {block.vocabulary} wide, the route's {route.width}")
        due = self._plan.first_logits_position + tally.rows
        if block.first_position != due or tally.rows + block.rows > self._plan.logits_rows:
            self._refuse(
                f"the reference sent {block.rows} rows of logits from position {block.first_position} where {due} is due"
            )
        reference = self._block(block.values, block.rows, route.width)
        candidate = route.read(tally.rows, block.rows)
        tally.add(candidate, reference)
        for offset in range(block.rows):
            self._token(due + offset, candidate[offset], reference[offset])

    def _token(self, position: int, candidate: Bits, reference: Bits) -> None:
        chosen = greedy(reference)
        self.result.greedy_differing += greedy(candidate) != chosen
        step = position - (len(self._plan.tokens) - 1)
        if step >= 0:
            self.result.tokens_compared += 1
            self.result.tokens_differing += self._observation.sampled[step] != chosen

    def _block(self, values: bytes, rows: int, width: int) -> Bits:
        if rows == 0 or len(values) != 4 * rows * width:
            self._refuse(f"the reference sent {len(values)} bytes for {rows} rows of {width} values")
        return as_bits(values, width)

    def _refuse(self, problem: str) -> NoReturn:
        _require(self._plan, [problem])
        raise AssertionError


class CachedOracle:
    """Asks an oracle once for each sequence of calls, with many cuts at once, and keeps the answers in memory.

    For comparing many routes over the same short prompts: as long as they agree, they make the same calls.

    Args:
        cuts: Every cut that will be asked for.
    """

    def __init__(self, oracle: Oracle, cuts: Sequence[int]) -> None:
        self._oracle = oracle
        self._cuts = tuple(cuts)
        self._answers: dict[tuple[bytes, ...], tuple[reference_pb2.ReplayResponse, ...]] = {}

    def replay(self, calls: Sequence[DecodeCall], cuts: Sequence[int]) -> Iterator[reference_pb2.ReplayResponse]:
        """The oracle's answer to exactly these calls, without the cuts that are not asked for."""
        if not set(cuts) <= set(self._cuts):
            raise ValueError(f"cuts {cuts} are not among the recorded {self._cuts}")
        key = tuple(call.SerializeToString(deterministic=True) for call in calls)
        if key not in self._answers:
            self._answers[key] = tuple(self._oracle.replay(calls, self._cuts))
        for response in self._answers[key]:
            if response.WhichOneof("message") != "residual" or response.residual.cut in cuts:
                yield response
