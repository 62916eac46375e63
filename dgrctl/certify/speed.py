"""Speed of the split against the whole, in pairs: one after the other on the same prompt, in alternating order.

Each side measures itself by the same definition (``Finished`` in the wire contract), so neither carries the client's overhead.
Warm-up pairs run first and are not counted; every pair after them is kept as it was. Load and stolen time are recorded with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from dgr.v1 import common_pb2, reference_pb2, worker_pb2

from dgrctl.certify.environment import cpu_times, load_average, stolen_ppm
from dgrctl.errors import CertificationVoid, InputError
from dgrctl.evidence.certification import SpeedPair
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import Recipe
from dgrctl.runtime.commands import compute_gate
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import Route


@dataclass(frozen=True)
class Sample:
    """One generation as the process that answered measured it, in microseconds."""

    prefill_us: int
    decode_us: int


class Generator(Protocol):
    """One side of a pair."""

    def __call__(self, prompt: common_pb2.Prompt, generate_tokens: int) -> Sample:
        """Generates exactly that many tokens, past any end token."""


def whole(reference: LocalReference) -> Generator:
    """The whole model in the reference."""

    def generate(prompt: common_pb2.Prompt, generate_tokens: int) -> Sample:
        with reference.explained():
            answers = reference.client.generate(prompt, max_tokens=generate_tokens, ignore_end_of_generation=True)
            return _sample("the whole", answers, len(prompt.tokens.ids), generate_tokens)

    return generate


def split(route: Route) -> Generator:
    """The same through a route, without logits."""

    def generate(prompt: common_pb2.Prompt, generate_tokens: int) -> Sample:
        answers = route.generate(prompt, max_tokens=generate_tokens, ignore_end_of_generation=True)
        return _sample("the split", answers, len(prompt.tokens.ids), generate_tokens)

    return generate


def measure_pairs(
    sides: tuple[Generator, Generator],
    prompt_tokens: tuple[int, ...],
    generate_tokens: int,
    *,
    warmup: int,
    pairs: int,
    advance: Callable[[], None] = lambda: None,
) -> tuple[SpeedPair, ...]:
    """Measures ``pairs`` pairs after ``warmup`` pairs that are thrown away.

    Args:
        sides: The whole and the split.
        generate_tokens: Tokens per generation; one fewer decode steps are timed.
        advance: Told after each pair, warm-up included.

    Raises:
        CertificationVoid: a side did something else than it was asked for, or its clock did not move.
        StageError, AdmissionError: of the route.
    """
    prompt = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=prompt_tokens))
    # What a build and the parity runs wrote would otherwise be written back by the kernel while time is measured.
    os.sync()
    measured = []
    for number in range(warmup + pairs):
        load = next(iter(load_average()), "0")
        before = cpu_times()
        split_first = number % 2 == 1
        samples = [side(prompt, generate_tokens) for side in (reversed(sides) if split_first else sides)]
        whole_sample, split_sample = reversed(samples) if split_first else samples
        measured.append(
            SpeedPair(
                first="split" if split_first else "whole",
                load_1m=load,
                stolen_ppm=stolen_ppm(before, cpu_times()),
                whole_prefill_us=whole_sample.prefill_us,
                whole_decode_us=whole_sample.decode_us,
                split_prefill_us=split_sample.prefill_us,
                split_decode_us=split_sample.decode_us,
            )
        )
        advance()
    return tuple(measured[warmup:])


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


def _sample(
    side: str,
    answers: Iterable[worker_pb2.GenerateResponse] | Iterable[reference_pb2.ReferenceGenerateResponse],
    prompt_tokens: int,
    generate_tokens: int,
) -> Sample:
    tokens, finished = 0, None
    for answer in answers:
        tokens += answer.HasField("token")
        if answer.HasField("finished"):
            finished = answer.finished
    if finished is None:
        _refuse(side, "ended without a last message")
    said = (finished.reason, finished.prompt_tokens, finished.generated_tokens)
    if tokens != generate_tokens or said != (common_pb2.FINISH_REASON_MAX_TOKENS, prompt_tokens, generate_tokens):
        _refuse(side, f"sent {tokens} tokens and says (reason, prompt tokens, generated tokens) {said}")
    if finished.prefill_us == 0 or finished.decode_us == 0:
        _refuse(side, f"took {finished.prefill_us} and {finished.decode_us} microseconds: its clock does not move")
    return Sample(prefill_us=finished.prefill_us, decode_us=finished.decode_us)


def _refuse(side: str, problem: str) -> NoReturn:
    raise CertificationVoid(
        f"{side} {problem}", where="speed", remedy="read the logs of the workers and of the reference; nothing was measured"
    )
