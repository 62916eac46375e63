"""Whole against split in pairs, at several thread counts, and the cost of one hop.

Ratios are formed inside pairs whose halves ran in turns, on the same machine in one run. Only ratios mean anything; absolute
times do not. Everything raw goes to ``.dgr/bench/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from dgr.v1 import common_pb2

from dgrctl.bench.hops import CONFIDENCE, RESAMPLES, between_engines, step_differences
from dgrctl.certify.environment import capture
from dgrctl.certify.parity_set import tokenize
from dgrctl.certify.prompts import load_prompt_set
from dgrctl.certify.speed import Side, measure_pairs, speed_prompt, split, whole, whole_threads
from dgrctl.console import progress
from dgrctl.evidence.certification import RatioEstimate, Reading, SpeedPair
from dgrctl.evidence.lock import load_locks
from dgrctl.evidence.ratios import estimate
from dgrctl.files import write_atomic
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.prepare import Prepared, prepare
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute
from dgrctl.statelock import state_lock

PROMPT_SET = "core.v1"
HOP_PROMPT_TOKENS = 16


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure.

    Args:
        recipes: A recipe, and one with a stage more.
        threads: Threads of each stage, and of the whole; one after the other.
        pairs: Counted pairs.
        warmup: Pairs that run first and are not counted.
        decode_slice_tokens: That one side decodes before it is the other's turn.
    """

    recipes: tuple[str, str]
    threads: tuple[int, ...]
    pairs: int
    warmup: int
    prompt_tokens: int
    generate_tokens: int
    decode_slice_tokens: int


class Goals(msgspec.Struct, frozen=True, kw_only=True):
    """Ratios that the newest certification lock for the lane and the model of the first recipe demands."""

    lock: str
    prefill: str
    decode: str


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured at one thread count. ``longer`` pairs the 2-stage route ("whole") with the 3-stage one ("split")."""

    stage_threads: int
    whole_threads: int
    pairs: tuple[SpeedPair, ...]
    prefill: RatioEstimate
    decode: RatioEstimate
    longer: tuple[SpeedPair, ...]
    hop_us: list[int]
    between_engines_us: list[int]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """``.dgr/bench/*.json``."""

    schema: int
    recipes: tuple[str, str]
    goals: Goals | None
    prompt_tokens: int
    generate_tokens: int
    decode_slice_tokens: int
    warmup: int
    before: Reading
    after: Reading
    threads: list[Threads]


def run(layout: Layout, plan: Plan) -> Report:
    """Measures all that ``plan`` names.

    Raises:
        DgrError: a recipe, its model or its build cannot be used, or the machine is in use by a certification.
    """
    # One lock with certification: either would spoil the other's times.
    with state_lock(layout, "certify"):
        two, three = (prepare(layout, name) for name in plan.recipes)
        goals = _goals(layout, two)
        before = capture()
        measured = [_measure(layout, two, three, threads, plan) for threads in plan.threads]
    return Report(
        schema=3,
        recipes=(two.recipe.name, three.recipe.name),
        goals=goals,
        prompt_tokens=plan.prompt_tokens,
        generate_tokens=plan.generate_tokens,
        decode_slice_tokens=plan.decode_slice_tokens,
        warmup=plan.warmup,
        before=before,
        after=capture(),
        threads=measured,
    )


def _goals(layout: Layout, prepared: Prepared) -> Goals | None:
    wanted = (prepared.recipe.lane, prepared.recipe.model)
    fitting = [lock for lock in load_locks(layout.certs / "locks") if (lock.lane, lock.model) == wanted]
    if not fitting:
        return None
    newest = max(fitting, key=lambda lock: lock.version)
    return Goals(lock=newest.name, prefill=str(newest.speed.min_ratio_prefill), decode=str(newest.speed.min_ratio_decode))


def _measure(layout: Layout, two: Prepared, three: Prepared, threads: int, plan: Plan) -> Threads:
    two, three = _with_threads(two, threads), _with_threads(three, threads)
    for_whole = whole_threads(layout, two.recipe, len(two.ranges))
    steps = plan.generate_tokens - 1
    rounds = 2 * (plan.warmup + plan.pairs)
    done = 0
    with (
        LocalReference(layout, two.recipe, two.model, two.build, threads=for_whole) as reference,
        _route(layout, two) as short,
        _route(layout, three) as longer,
        progress(f"Measuring with {threads} threads per stage", total=rounds) as update,
    ):

        def advance() -> None:
            nonlocal done
            done += 1
            update(done, None)

        prompts = load_prompt_set(layout.certs / "prompts" / f"{PROMPT_SET}.toml")
        prompt = speed_prompt(tokenize(reference, prompts).values(), plan.prompt_tokens)
        hop_prompt = prompt[:HOP_PROMPT_TOKENS]

        def measure(one: Side, other: Side, tokens: tuple[int, ...]) -> tuple[SpeedPair, ...]:
            return measure_pairs(
                (one, other),
                tokens,
                steps + 1,
                decode_slice=plan.decode_slice_tokens,
                warmup=plan.warmup,
                pairs=plan.pairs,
                advance=advance,
            )

        pairs = measure(whole(reference), split(short), prompt)
        hops = measure(split(short), split(longer), hop_prompt)
    with _route(layout, two, allow_probes=True) as probed:
        waits = between_engines(probed, common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=hop_prompt)), steps)
    return Threads(
        stage_threads=threads,
        whole_threads=for_whole,
        pairs=pairs,
        prefill=_ratio([(pair.whole_prefill_us, pair.split_prefill_us) for pair in pairs]),
        decode=_ratio([(pair.whole_decode_us, pair.split_decode_us) for pair in pairs]),
        longer=hops,
        hop_us=step_differences(hops, steps),
        between_engines_us=waits,
    )


def _with_threads(prepared: Prepared, threads: int) -> Prepared:
    execution = msgspec.structs.replace(prepared.recipe.execution, threads=threads)
    recipe = msgspec.structs.replace(prepared.recipe, execution=execution)
    return Prepared(recipe, prepared.model, prepared.build, prepared.ranges)


def _route(layout: Layout, prepared: Prepared, *, allow_probes: bool = False) -> LocalRoute:
    ranges: list[LayerRange] = list(prepared.ranges)
    return LocalRoute(layout, prepared.recipe, prepared.model, prepared.build, ranges, allow_probes=allow_probes)


def _ratio(durations: list[tuple[int, int]]) -> RatioEstimate:
    return estimate(durations, confidence=CONFIDENCE, resamples=RESAMPLES, seed="bench")


def write(layout: Layout, report: Report) -> Path:
    """Writes everything that was measured; returns the file."""
    path = layout.state / "bench" / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}.json"
    write_atomic(path, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return path
