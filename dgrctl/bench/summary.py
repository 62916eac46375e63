"""What was measured: as tables for people, and as the JSON document that scripts read."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

from dgrctl.bench.hops import Microseconds
from dgrctl.bench.measure import Report
from dgrctl.evidence.certification import RatioEstimate
from dgrctl.report.table import print_table


@dataclass(frozen=True)
class Figure:
    """One ratio, speed of the split / speed of the whole, with its interval.

    Args:
        name: ``prefill`` or ``decode``, and the threads of each stage.
        goal: What the newest lock demands; None where no lock is for this lane and model.
        met: True where the whole interval reaches the goal; None without a goal.
    """

    name: str
    ratio: float
    low: float
    high: float
    goal: float | None
    met: bool | None


@dataclass(frozen=True)
class _Phase:
    name: str
    tokens: int
    ratio: RatioEstimate
    goal: str | None

    def figure(self, threads: int) -> Figure:
        met = None if self.goal is None else Decimal(self.ratio.low) >= Decimal(self.goal)
        goal = None if self.goal is None else float(self.goal)
        name = f"{self.name}, {threads} {'thread' if threads == 1 else 'threads'} per stage"
        return Figure(name, float(self.ratio.ratio), float(self.ratio.low), float(self.ratio.high), goal, met)


def _phases(report: Report) -> list[tuple[int, int, _Phase]]:
    """Threads of each stage and of the whole, with what was measured at them."""
    goals = report.goals
    return [
        (one.stage_threads, one.whole_threads, phase)
        for one in report.threads
        for phase in (
            _Phase("prefill", report.prompt_tokens, one.prefill, goals.prefill if goals else None),
            _Phase("decode", report.generate_tokens - 1, one.decode, goals.decode if goals else None),
        )
    ]


def as_dict(report: Report, raw: Path) -> dict[str, object]:
    """What ``dgrctl bench --json`` prints. ``hops`` are microseconds: low, median and high."""
    return {
        "figures": [asdict(phase.figure(threads)) for threads, _, phase in _phases(report)],
        "hops": [
            {
                "stage_threads": one.stage_threads,
                "one_more_stage_us": asdict(Microseconds.of(one.hop_us, "hop")),
                "between_engines_us": asdict(Microseconds.of(one.between_engines_us, "between")),
            }
            for one in report.threads
        ],
        "recipes": list(report.recipes),
        "lock": report.goals.lock if report.goals else None,
        "raw": str(raw),
    }


def show(report: Report, *, wide: bool) -> None:
    """Prints the tables on stdout."""
    rows = []
    for threads, whole_threads, phase in _phases(report):
        ratio, figure = phase.ratio, phase.figure(threads)
        speeds = [f"{phase.tokens * 1e6 / time:.1f}" for time in (ratio.whole_median_us, ratio.split_median_us)]
        met = {None: "-", True: "yes", False: "no"}[figure.met]
        interval = f"{ratio.low[:5]} … {ratio.high[:5]}"
        rows.append([phase.name, str(whole_threads), str(threads), *speeds, ratio.ratio[:5], interval, phase.goal or "-", met])
    headings = (
        "phase",
        "whole threads",
        "stage threads",
        "whole t/s",
        "2 stages t/s",
        "split / whole",
        "interval",
        "goal",
        "met",
    )
    print_table(headings, rows, wide=wide)
    sys.stdout.write("\n")
    hops = [
        [
            str(one.stage_threads),
            str(Microseconds.of(one.hop_us, "hop")),
            str(Microseconds.of(one.between_engines_us, "between")),
        ]
        for one in report.threads
    ]
    print_table(("stage threads", "one more stage, us per decode step", "frame between engines, us"), hops, wide=wide)
