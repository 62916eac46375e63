"""The benchmark, with as little as it takes: that it runs, and keeps every raw sample of what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.layout import Layout

PAIRS, STEPS = 2, 5


def test_ratios_and_hops_come_with_their_raw_samples(
    layout: Layout, verified_build: BuildRecord, verified_model: LocalModel
) -> None:
    del verified_build, verified_model  # what it needs
    little = ["--threads", "1", "--pairs", str(PAIRS), "--prompt-tokens", "24", "--generate-tokens", str(STEPS + 1)]
    command = [sys.executable, "-m", "dgrctl", "bench", "--json", *little, "--decode-slice-tokens", "2"]
    run = subprocess.run(command, cwd=layout.root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    printed = json.loads(run.stdout)
    assert [figure["name"] for figure in printed["figures"]] == ["prefill, 1 thread per stage", "decode, 1 thread per stage"]
    for figure in printed["figures"]:
        assert set(figure) == {"name", "ratio", "low", "high", "goal", "met"}
        assert figure["met"] == (figure["low"] >= figure["goal"])
    raw = Path(printed["raw"])
    report = json.loads(raw.read_text())
    raw.unlink()
    assert (report["decode_slice_tokens"], len(report["threads"])) == (2, 1)
    one = report["threads"][0]
    assert (len(one["pairs"]), len(one["longer"])) == (PAIRS, PAIRS)
    assert len(one["between_engines_us"]) >= STEPS
    for phase in ("prefill", "decode"):
        assert float(one[phase]["low"]) <= float(one[phase]["ratio"]) <= float(one[phase]["high"])
