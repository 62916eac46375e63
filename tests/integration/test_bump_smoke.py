"""What a bump's smoke test builds and compares, and that it fails where it should."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from small_build import SmallBuild

from dgrctl.certify.smoke import RECIPE, compare, prover, verdict
from dgrctl.errors import BuildError
from dgrctl.layout import Layout
from dgrctl.runtime.prepare import prepare
from dgrctl.upstream.bump import bump, exit_code

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord


def test_this_checkouts_own_build_passes(layout: Layout, verified_build: BuildRecord, verified_model: LocalModel) -> None:
    del verified_build, verified_model
    prepared = prepare(layout, RECIPE)
    proof = verdict(prepared, compare(layout, prepared))
    assert proof.passed, proof.text
    assert "of 0 " not in proof.text


def test_a_route_that_rounds_its_boundaries_does_not(
    layout: Layout, verified_build: BuildRecord, verified_model: LocalModel
) -> None:
    del verified_build, verified_model
    prepared = prepare(layout, f"{RECIPE}-bf16")
    assert not verdict(prepared, compare(layout, prepared)).passed


def test_an_upstream_that_does_not_compile_is_told_and_not_taken(layout: Layout, tmp_path: Path) -> None:
    """The patches apply, and all that is built is built for real."""
    small = SmallBuild(tmp_path)
    for folder in ("recipes", "manifests/models"):
        shutil.copytree(layout.root / folder, small.layout.root / folder)
    before = small.patch_files()
    commit = small.advance({"ggml/src/ggml-cpu/ops.cpp": b"int ggml_ops() { return 1 }\n"})
    report = bump(small.layout, to=commit, commit=True, prove=prover(small.layout))
    assert report.proof is not None
    assert "ops.cpp" in report.proof.text
    assert (report.applies, report.committed, exit_code(report)) == (True, False, BuildError.exit_code)
    assert small.patch_files() == before
