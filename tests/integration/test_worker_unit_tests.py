"""The worker's own unit tests in C++ (worker/tests), built in the worker's folder and counted as part of this run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dgrctl.certify.architectures import run
from dgrctl.certify.architectures.synthesis import synthesise
from dgrctl.lanes.build import build_extra, build_tests
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord


@pytest.fixture
def vocabularies(verified_model: LocalModel, gemma_model: LocalModel) -> dict[str, Path]:
    """Real models whose vocabularies the tests use, by the variables that name them."""
    return {"DGR_TEST_SMOLLM2": verified_model.first_part, "DGR_TEST_GEMMA": gemma_model.first_part}


def test_all_pass(
    layout: Layout,
    verified_build: BuildRecord,
    fixture_models: FixtureModels,
    vocabularies: dict[str, Path],
    tmp_path: Path,
) -> None:
    generators = build_extra(layout, run.LANE, "reference", run.GENERATORS, title="Building upstream's generator of small models")
    models = {
        "DGR_TEST_DEEPSEEK4": fixture_models.deepseek4(weights="f32").first_part,
        "DGR_TEST_GEMMA3": synthesise(layout, generators, "gemma3").models[0],
        **vocabularies,
    }
    report = tmp_path / "report.json"
    done = subprocess.run(
        [build_tests(layout, "cpu"), f"--gtest_output=json:{report}", "--gtest_brief=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {name: str(path) for name, path in models.items()},
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
