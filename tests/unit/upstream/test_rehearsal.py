"""Every kind of outcome, each from an upstream that brings it about, and causes told from consequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from upstream_checkout import FILES, FIRST, SECOND, THIRD, Checkout, message

from dgrctl.errors import FetchError, PatchError
from dgrctl.upstream.attempt import Step
from dgrctl.upstream.export import export
from dgrctl.upstream.git import Repository
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.rehearsal import Rehearsed, rehearse, steps_at_pin
from dgrctl.upstream.series import load_series
from dgrctl.upstream.target import bring_target

CORE, LLAMA = FILES["src/llama.cpp"], FILES["src/models/llama.cpp"]

Rehearse = Callable[[dict[str, bytes | None]], list[Rehearsed]]


@pytest.fixture
def rehearsed(stacked: Checkout, tmp_path: Path) -> Rehearse:
    """Rehearses the stack on an upstream with these files."""

    def run(files: dict[str, bytes | None]) -> list[Rehearsed]:
        commit = stacked.advance(files)
        manifest = load_manifest(stacked.layout)
        series = load_series(stacked.layout, manifest)
        target = bring_target(stacked.layout, manifest, tmp_path / "clone", to=commit).target
        repository = Repository(tmp_path / "clone", raises=PatchError)
        named = [(locked.name, patch) for locked, patch in zip(series.lock.patches, series.patches, strict=True)]
        return rehearse(repository, steps_at_pin(repository, manifest.commit, named), target.tree)

    return run


def outcomes(results: list[Rehearsed]) -> list[str]:
    return [result.trial.outcome for result in results]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"README.md": b"other\n"}, ["clean", "clean", "clean"]),
        ({"src/llama.cpp": b"// x\n" * 7 + CORE}, ["offset", "offset", "clean"]),
        # The neighbours of a changed line changed: no hunk fits, and yet nobody is in doubt.
        ({"src/llama.cpp": CORE.replace(b"line_28(", b"line_acht(")}, ["clean", "merged three-way", "clean"]),
        ({"src/llama.cpp": CORE.replace(b"line_30(", b"line_x(")}, ["clean", "conflict", "clean"]),
        ({"src/llama.cpp": CORE.replace(b"line_30(", b"line_thirty(")}, ["clean", "already upstream", "clean"]),
        ({"src/llama.cpp": b"// x\n" * 7 + CORE.replace(b"line_30(", b"line_thirty(")}, ["offset", "already upstream", "clean"]),
        ({"src/models/llama.cpp": None}, ["clean", "clean", "target gone"]),
        ({"src/models/llama.cpp": None, "src/models/lama.cpp": LLAMA}, ["clean", "clean", "merged three-way"]),
        ({"src/models/llama.cpp": LLAMA + b"// new\n"}, ["clean", "clean", "already upstream"]),
    ],
)
def test_outcome(rehearsed: Rehearse, files: dict[str, bytes | None], expected: list[str]) -> None:
    results = rehearsed(files)
    assert outcomes(results) == expected
    for result in results:
        assert (result.cause == "first") == result.trial.failed
        assert (result.trial.tree is None) == result.trial.failed
        assert (result.trial.offset > 0) == (result.trial.outcome == "offset")
        assert bool(result.trial.conflicts) == result.trial.failed


def test_offset_is_counted_in_lines(rehearsed: Rehearse) -> None:
    assert [result.trial.offset for result in rehearsed({"src/llama.cpp": b"// x\n" * 7 + CORE})] == [7, 7, 0]


def test_a_patch_on_top_of_one_that_failed_follows_from_it(stacked: Checkout, rehearsed: Rehearse) -> None:
    stacked.commit_change(message("Core: on second", "src/llama.cpp"), old=b"line_thirty", new=b"line_dreissig")
    stacked.commit_change(message("Core: apart", "src/llama.cpp"), old=b"line_10(", new=b"line_ten(")
    export(stacked.layout)
    results = rehearsed({"src/llama.cpp": CORE.replace(b"line_30(", b"line_x("), "src/models/llama.cpp": None})
    told = [(result.step.name, result.trial.outcome, result.cause, result.follows) for result in results]
    assert told == [
        (FIRST, "clean", None, ()),
        (SECOND, "conflict", "first", ()),
        (THIRD, "target gone", "first", ()),
        ("0004-Core-on-second.patch", "conflict", "follows", (SECOND,)),
        ("0005-Core-apart.patch", "clean", None, ()),
    ]


def test_two_causes_in_one_file_are_both_first(stacked: Checkout, rehearsed: Rehearse) -> None:
    stacked.commit_change(message("Core: apart", "src/llama.cpp"), old=b"line_10(", new=b"line_ten(")
    export(stacked.layout)
    results = rehearsed({"src/llama.cpp": CORE.replace(b"line_30(", b"line_x(").replace(b"line_10(", b"line_y(")})
    assert [result.cause for result in results] == [None, "first", None, "first"]


def test_new_files_that_upstream_has_too(stacked: Checkout, rehearsed: Rehearse) -> None:
    stacked.commit_change(message("Stage: file", "src/stage.h"), "src/stage.h", new=b"// ours\n")
    export(stacked.layout)
    assert outcomes(rehearsed({"src/stage.h": b"// theirs\n"}))[-1] == "conflict"


def test_same_new_file_is_already_upstream(stacked: Checkout, rehearsed: Rehearse) -> None:
    stacked.commit_change(message("Stage: file", "src/stage.h"), "src/stage.h", new=b"// ours\n")
    export(stacked.layout)
    assert outcomes(rehearsed({"src/stage.h": b"// ours\n"}))[-1] == "already upstream"


def test_a_removed_file_and_an_executable(stacked: Checkout, rehearsed: Rehearse) -> None:
    (stacked.layout.workspace / "src" / "dos.txt").unlink()
    stacked.commit_change(message("Run: more", "build-scripts/run.sh src/dos.txt"), "build-scripts/run.sh", new=b"exit 1\n")
    export(stacked.layout)
    results = rehearsed({"build-scripts/run.sh": b"#!/bin/sh\nexit 7\n", "src/dos.txt": b"changed\r\n"})
    assert (outcomes(results)[-1], results[-1].cause) == ("conflict", "first")
    assert set(results[-1].trial.conflicts) == {"build-scripts/run.sh", "src/dos.txt"}


def test_steps_are_the_stack_at_its_pin(stacked: Checkout, rehearsed: Rehearse) -> None:
    steps: list[Step] = [result.step for result in rehearsed({"README.md": b"x"})]
    assert [step.name for step in steps] == [FIRST, SECOND, THIRD]
    assert steps[-1].after == stacked.workspace.resolve("HEAD^{tree}")
    assert [step.paths for step in steps] == [("src/llama.cpp",), ("src/llama.cpp",), ("src/models/llama.cpp",)]


def test_no_such_commit(stacked: Checkout, tmp_path: Path) -> None:
    with pytest.raises(FetchError):
        bring_target(stacked.layout, load_manifest(stacked.layout), tmp_path / "clone", to="no-such-branch")
