"""What ``dgrctl bench`` prints of what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgrctl.bench.measure import Goals, Report, Threads
from dgrctl.bench.summary import as_dict, show
from dgrctl.certify.environment import capture
from dgrctl.evidence.certification import RatioEstimate

GOALS = Goals(lock="cpu.model.v3", prefill="0.80", decode="0.80")


def report(goals: Goals | None) -> Report:
    measured = Threads(
        stage_threads=2,
        whole_threads=2,
        pairs=(),
        prefill=RatioEstimate(whole_median_us=1_000_000, split_median_us=1_100_000, ratio="0.9", low="0.800000", high="0.95"),
        decode=RatioEstimate(whole_median_us=630_000, split_median_us=700_000, ratio="0.9", low="0.799999", high="0.95"),
        longer=(),
        hop_us=[100, 120, 140],
        between_engines_us=[40, 50, 60],
    )
    reading = capture()
    return Report(
        schema=3,
        recipes=("two", "three"),
        goals=goals,
        prompt_tokens=256,
        generate_tokens=64,
        decode_slice_tokens=8,
        warmup=1,
        before=reading,
        after=reading,
        threads=[measured],
    )


def test_a_goal_is_met_where_the_whole_interval_reaches_it() -> None:
    document = as_dict(report(GOALS), Path("raw.json"))
    common = {"ratio": 0.9, "high": 0.95, "goal": 0.8}
    assert document["figures"] == [
        {"name": "prefill, 2 threads per stage", "low": 0.8, "met": True, **common},
        {"name": "decode, 2 threads per stage", "low": 0.799999, "met": False, **common},
    ]
    assert (document["lock"], document["raw"], document["recipes"]) == ("cpu.model.v3", "raw.json", ["two", "three"])


def test_without_a_lock_there_is_no_goal() -> None:
    document = as_dict(report(None), Path("raw.json"))
    figures = document["figures"]
    assert isinstance(figures, list)
    assert [(figure["goal"], figure["met"]) for figure in figures] == [(None, None)] * 2
    assert document["lock"] is None


def test_the_tables_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(GOALS), wide=True)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said[1] == ["prefill", "2", "2", "256.0", "232.7", "0.9", "0.800", "…", "0.95", "0.80", "yes"]
    assert said[2] == ["decode", "2", "2", "100.0", "90.0", "0.9", "0.799", "…", "0.95", "0.80", "no"]
    assert said[-1][:2] == ["2", "120"]
