"""Speed of the split against the whole, in pairs: on the same prompt, taking turns, in alternating order.

A machine that other work shares changes its speed within seconds. So the two halves of a pair do not decode one after the other:
both prefill, and then take turns for a few tokens each, while the other side waits for credit and computes nothing.

Each side measures itself by the same definition (``Finished`` in the wire contract), so neither carries the client's overhead.
Warm-up pairs run first and are not counted; every pair after them is kept as it was. Load, stolen time, pressure and
throttling are recorded with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NoReturn, Protocol

from dgr.v1 import common_pb2, reference_pb2, worker_pb2

from dgrctl.certify.environment import cpu_pressure_us, cpu_times, load_average, stolen_ppm
from dgrctl.errors import CertificationVoid, InputError
from dgrctl.evidence.certification import SpeedPair
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import Recipe
from dgrctl.runtime.cgroups import cpu_quota
from dgrctl.runtime.commands import compute_gate
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import Route, new_session

Answers = Generator[worker_pb2.GenerateResponse] | Generator[reference_pb2.ReferenceGenerateResponse]


@dataclass(frozen=True)
class Sample:
    """One generation as the process that answered measured it, in microseconds."""

    prefill_us: int
    decode_us: int


class Generation:
    """One side's half of a pair: a generation with a credit of one token. Nothing runs before :meth:`prefill`.

    Args:
        side: How errors name it.
        answers: What it streams.
        grant: Allows it more tokens.
        clock: Nanoseconds, monotonic.
    """

    def __init__(
        self, side: str, answers: Answers, grant: Callable[[int], None], clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._side = side
        self._answers = answers
        self._grant = grant
        self._clock = clock
        self._turns_ns = 0
        self._received = 0
        self._finished: common_pb2.Finished | None = None

    def prefill(self) -> None:
        """Waits for the first token.

        Raises:
            CertificationVoid: it ended before.
        """
        self._receive(1)

    def decode(self, tokens: int) -> None:
        """Its turn: that many tokens more.

        Raises:
            CertificationVoid: it ended before.
        """
        began = self._clock()
        self._grant(tokens)
        self._receive(tokens)
        self._turns_ns += self._clock() - began

    def finish(self, prompt_tokens: int, generate_tokens: int) -> Sample:
        """Takes in the end.

        Raises:
            CertificationVoid: it did something else than generate ``generate_tokens`` tokens, past any end token, after a
                prompt of ``prompt_tokens``; it decoded outside its turns; or its clock did not move.
        """
        for answer in self._answers:
            self._take(answer)
        finished = self._finished
        if finished is None:
            self._refuse("ended without a last message")
        said = (finished.reason, finished.prompt_tokens, finished.generated_tokens)
        if self._received != generate_tokens or said != (common_pb2.FINISH_REASON_MAX_TOKENS, prompt_tokens, generate_tokens):
            self._refuse(f"sent {self._received} tokens and says (reason, prompt tokens, generated tokens) {said}")
        if finished.prefill_us == 0 or finished.decode_us == 0:
            self._refuse(f"took {finished.prefill_us} and {finished.decode_us} microseconds: its clock does not move")
        if finished.decode_us * 1000 > self._turns_ns:
            self._refuse(f"decoded for {finished.decode_us} us, and its turns took {self._turns_ns // 1000} us: it did not wait")
        return Sample(prefill_us=finished.prefill_us, decode_us=finished.decode_us)

    def close(self) -> None:
        """Ends it, wherever it is."""
        self._answers.close()

    def _receive(self, tokens: int) -> None:
        wanted = self._received + tokens
        for answer in self._answers:
            self._take(answer)
            if self._received == wanted:
                return
        self._refuse(f"ended after {self._received} of {wanted} tokens")

    def _take(self, answer: worker_pb2.GenerateResponse | reference_pb2.ReferenceGenerateResponse) -> None:
        self._received += answer.HasField("token")
        if answer.HasField("finished"):
            self._finished = answer.finished

    def _refuse(self, problem: str) -> NoReturn:
        raise CertificationVoid(
            f"{self._side} {problem}",
            where="speed",
            remedy="read the logs of the workers and of the reference; nothing was measured",
        )


class Side(Protocol):
    """The whole, or a route."""

    def __call__(self, prompt: common_pb2.Prompt, generate_tokens: int) -> Generation:
        """Prepares a generation of that many tokens, past any end token."""


def whole(reference: LocalReference) -> Side:
    """The whole model in the reference."""

    def answers(prompt: common_pb2.Prompt, generate_tokens: int) -> Generator[reference_pb2.ReferenceGenerateResponse]:
        with reference.explained():
            asked = {"max_tokens": generate_tokens, "credit": 1}
            with reference.client.generate(prompt, ignore_end_of_generation=True, **asked) as stream:
                yield from stream

    def grant(tokens: int) -> None:
        with reference.explained():
            reference.client.grant(tokens)

    return lambda prompt, generate_tokens: Generation("the whole", answers(prompt, generate_tokens), grant)


def split(route: Route) -> Side:
    """The same through a route, without logits."""

    def prepare(prompt: common_pb2.Prompt, generate_tokens: int) -> Generation:
        session = new_session()
        answers = route.generate(prompt, max_tokens=generate_tokens, session=session, ignore_end_of_generation=True, credit=1)
        return Generation("the split", answers, lambda tokens: route.grant(session, tokens))

    return prepare


def measure_pairs(
    sides: tuple[Side, Side],
    prompt_tokens: tuple[int, ...],
    generate_tokens: int,
    *,
    decode_slice: int,
    warmup: int,
    pairs: int,
    advance: Callable[[], None] = lambda: None,
    enough: Callable[[Sequence[SpeedPair]], bool] = lambda measured: False,
) -> tuple[SpeedPair, ...]:
    """Measures ``pairs`` pairs after ``warmup`` pairs that are thrown away.

    Args:
        sides: The whole and the split.
        generate_tokens: Tokens per generation; one fewer decode steps are timed.
        decode_slice: Tokens that one side decodes before it is the other's turn; 0: all of them.
        advance: Told after each pair, warm-up included.
        enough: Asked after each counted pair; where it says so, no more are measured.

    Raises:
        CertificationVoid: a side did something else than it was asked for, or its clock did not move.
        StageError, AdmissionError: of the route.
    """
    prompt = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=prompt_tokens))
    # What a build and the parity runs wrote would otherwise be written back by the kernel while time is measured.
    os.sync()
    in_turn = decode_slice or generate_tokens
    measured: list[SpeedPair] = []
    for number in range(warmup + pairs):
        load = next(iter(load_average()), "0")
        before, waited, throttled, began = cpu_times(), cpu_pressure_us(), _throttled_periods(), time.monotonic_ns()
        split_first = number % 2 == 1
        whole_sample, split_sample = _pair(sides, prompt, generate_tokens, in_turn, split_first=split_first)
        measured.append(
            SpeedPair(
                first="split" if split_first else "whole",
                load_1m=load,
                stolen_ppm=stolen_ppm(before, cpu_times()),
                whole_prefill_us=whole_sample.prefill_us,
                whole_decode_us=whole_sample.decode_us,
                split_prefill_us=split_sample.prefill_us,
                split_decode_us=split_sample.decode_us,
                pressure_ppm=_pressure_ppm(waited, cpu_pressure_us(), time.monotonic_ns() - began),
                throttled_periods=_rise(throttled, _throttled_periods()),
            )
        )
        advance()
        if number >= warmup and enough(measured[warmup:]):
            break
    return tuple(measured[warmup:])


def _pressure_ppm(before: int | None, after: int | None, duration_ns: int) -> int | None:
    waited_us = _rise(before, after)
    return None if waited_us is None else waited_us * 1_000_000_000 // max(duration_ns, 1)


def _throttled_periods() -> int | None:
    quota = cpu_quota()
    return None if quota is None else quota.throttled_periods


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def _pair(
    sides: tuple[Side, Side], prompt: common_pb2.Prompt, generate_tokens: int, decode_slice: int, *, split_first: bool
) -> tuple[Sample, Sample]:
    """The whole's sample and the split's."""
    with closing(sides[0](prompt, generate_tokens)) as whole_half, closing(sides[1](prompt, generate_tokens)) as split_half:
        order = [split_half, whole_half] if split_first else [whole_half, split_half]
        for half in order:
            half.prefill()
        left = generate_tokens - 1
        while left:
            tokens = min(decode_slice, left)
            for half in order:
                half.decode(tokens)
            # Whole, split, split, whole, …: a drift in one direction befalls both alike.
            order.reverse()
            left -= tokens
        fed = len(prompt.tokens.ids)
        return whole_half.finish(fed, generate_tokens), split_half.finish(fed, generate_tokens)


def whole_threads(layout: Layout, recipe: Recipe, stages: int) -> int:
    """Threads that give the whole model all the processors that the stages have together: its best configuration, not a
    convenient one. Stages that take turns have those of one stage."""
    takes_turns = compute_gate(layout, recipe, stages) is not None
    return recipe.execution.threads if takes_turns else recipe.execution.threads * stages


def speed_prompt(prompts: Iterable[tuple[int, ...]], length: int) -> tuple[int, ...]:
    """The first ``length`` tokens of the longest of ``prompts``.

    Raises:
        InputError: none is that long.
    """
    longest = max(prompts, key=len)
    if len(longest) < length:
        raise InputError(
            f"speed is measured on {length} prompt tokens, and the longest prompt has {len(longest)}",
            where="lock: speed.prompt_tokens",
            remedy="write a lock that asks for less, or that names a prompt set with a longer prompt, as a new version",
        )
    return longest[:length]
