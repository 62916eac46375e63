"""The worker's own unit tests in C++ (worker/tests), built in the worker's folder and counted as part of this run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from dgrctl.lanes.build import build_tests
from dgrctl.layout import Layout


def test_all_pass(layout: Layout, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [build_tests(layout, "cpu"), f"--gtest_output=json:{report}", "--gtest_brief=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    # A program that ran none, or crashed before it wrote, would not fail otherwise.
    counts = json.loads(report.read_text())
    assert counts["tests"] > 0
    assert counts["failures"] == counts["errors"] == counts["disabled"] == 0
    results = [test["result"] for suite in counts["testsuites"] for test in suite["testsuite"]]
    assert set(results) == {"COMPLETED"}, "a skipped test"
    print(f"{counts['tests']} C++ unit tests passed")
