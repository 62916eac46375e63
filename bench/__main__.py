"""``python -m bench``: whole against split in pairs, at several thread counts, and the cost of one hop.

Ratios are formed inside pairs whose halves ran in turns, on the same machine in one run; only they mean anything, absolute
times do not. The table goes to stdout, everything raw to ``.dgr/bench/``.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from dgr.v1 import common_pb2

from bench.hops import CONFIDENCE, RESAMPLES, Microseconds, between_engines, step_differences
from dgrctl.certify.environment import capture
from dgrctl.certify.parity_set import tokenize
from dgrctl.certify.prompts import load_prompt_set
from dgrctl.certify.speed import Side, measure_pairs, speed_prompt, split, whole, whole_threads
from dgrctl.console import note, progress, show_error
from dgrctl.errors import DgrError
from dgrctl.evidence.certification import RatioEstimate, Reading, SpeedPair
from dgrctl.evidence.ratios import estimate
from dgrctl.files import write_atomic
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.report.table import print_table
from dgrctl.runtime.prepare import Prepared, prepare
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute
from dgrctl.statelock import state_lock

PROMPT_SET = "core.v1"
HOP_PROMPT_TOKENS = 16


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
    prompt_tokens: int
    generate_tokens: int
    decode_slice_tokens: int
    warmup: int
    before: Reading
    after: Reading
    threads: list[Threads]


def main() -> int:
    """Runs the benchmark; returns the exit code."""
    try:
        arguments = _arguments()
        layout = Layout.find()
        # One lock with certification: either would spoil the other's times.
        with state_lock(layout, "certify"):
            two, three = (prepare(layout, name) for name in arguments.recipes)
            before = capture()
            measured = [_measure(layout, two, three, threads, arguments) for threads in arguments.threads]
        report = Report(
            schema=2,
            recipes=(two.recipe.name, three.recipe.name),
            prompt_tokens=arguments.prompt_tokens,
            generate_tokens=arguments.generate_tokens,
            decode_slice_tokens=arguments.decode_slice_tokens,
            warmup=arguments.warmup,
            before=before,
            after=capture(),
            threads=measured,
        )
        _print(report)
        note(f"raw samples: {_write(layout, report)}")
    except DgrError as error:
        show_error(error)
        return error.exit_code
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--recipes",
        nargs=2,
        metavar=("TWO", "THREE"),
        default=["smollm2-135m.cpu-2stage", "smollm2-135m.cpu-3stage"],
        help="a recipe and one with a stage more",
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="threads per stage, and of the whole")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=1, help="pairs that run first and are not counted")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--generate-tokens", type=int, default=64)
    parser.add_argument("--decode-slice-tokens", type=int, default=8, help="that one side decodes before it is the other's turn")
    return parser.parse_args()


def _measure(layout: Layout, two: Prepared, three: Prepared, threads: int, arguments: argparse.Namespace) -> Threads:
    two, three = _with_threads(two, threads), _with_threads(three, threads)
    for_whole = whole_threads(layout, two.recipe, len(two.ranges))
    steps = arguments.generate_tokens - 1
    rounds = 2 * (arguments.warmup + arguments.pairs)
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
        prompt = speed_prompt(tokenize(reference, prompts).values(), arguments.prompt_tokens)
        hop_prompt = prompt[:HOP_PROMPT_TOKENS]

        def measure(one: Side, other: Side, tokens: tuple[int, ...]) -> tuple[SpeedPair, ...]:
            return measure_pairs(
                (one, other),
                tokens,
                steps + 1,
                decode_slice=arguments.decode_slice_tokens,
                warmup=arguments.warmup,
                pairs=arguments.pairs,
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


def _print(report: Report) -> None:
    rows = []
    for one in report.threads:
        for phase, tokens, ratio in (
            ("prefill", report.prompt_tokens, one.prefill),
            ("decode", report.generate_tokens - 1, one.decode),
        ):
            speeds = [f"{tokens * 1e6 / time:.1f}" for time in (ratio.whole_median_us, ratio.split_median_us)]
            interval = f"{ratio.low[:5]} … {ratio.high[:5]}"
            rows.append([phase, str(one.whole_threads), str(one.stage_threads), *speeds, ratio.ratio[:5], interval])
    print_table(["phase", "whole threads", "stage threads", "whole t/s", "2 stages t/s", "split / whole", "interval"], rows)
    sys.stdout.write("\n")
    hops = []
    for one in report.threads:
        hop = Microseconds.of(one.hop_us, "hop")
        wait = Microseconds.of(one.between_engines_us, "between")
        hops.append([str(one.stage_threads), str(hop), str(wait)])
    print_table(["stage threads", "one more stage, us per decode step", "frame between engines, us"], hops)


def _write(layout: Layout, report: Report) -> Path:
    path = layout.state / "bench" / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}.json"
    write_atomic(path, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
