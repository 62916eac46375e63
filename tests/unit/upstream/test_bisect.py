"""Bisecting finds the last commit that the stack applies to, and says what the next one breaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from upstream_checkout import FILES, SECOND, Checkout

from dgrctl.errors import DgrError, FetchError, InputError, PatchError
from dgrctl.upstream.bisect import bisect
from dgrctl.upstream.bump import bump
from dgrctl.upstream.git import run_git

CORE = FILES["src/llama.cpp"]


@pytest.fixture
def history(stacked: Checkout) -> list[str]:
    """The pin and eight commits after it, of which the fifth breaks the second patch, for good."""
    commits = [stacked.commit]
    for number in range(1, 9):
        core = CORE.replace(b"line_30(", b"line_x(") if number >= 5 else CORE
        commits.append(stacked.advance({"src/llama.cpp": b"// x\n" * number + core}, f"Commit {number}"))
    return commits


def test_newest_compatible_commit(stacked: Checkout, history: list[str]) -> None:
    before = stacked.everything()
    report = bisect(stacked.layout, f"{history[0]}..{history[-1]}")
    assert (report.compatible, report.incompatible, report.commits) == (history[4], history[5], 8)
    assert report.tried <= 5
    (broken,) = [line for line in report.patches if line.cause]
    assert (broken.name, broken.outcome) == (SECOND, "conflict")
    assert broken.upstream_commits is not None
    assert broken.upstream_commits[0].subject == "Commit 5"
    assert report.next_commands == (f"dgrctl patch bump --to {history[4]}",)
    assert stacked.everything() == before


def test_names_are_the_servers(stacked: Checkout, history: list[str]) -> None:
    """Also of an annotated tag, which is no commit."""
    stacked.upstream.run("-c", "user.name=T", "-c", "user.email=t@t", "tag", "-m", "A release", "v1", history[1])
    stacked.upstream.run("branch", "topic", history[2])
    assert bisect(stacked.layout, "v1..topic").commits == 1


def test_a_range_that_breaks_nothing(stacked: Checkout, history: list[str]) -> None:
    report = bisect(stacked.layout, f"{history[1]}..{history[4]}", source=stacked.upstream.folder)
    assert (report.compatible, report.incompatible, report.tried) == (history[4], None, 2)
    assert report.next_commands[0].endswith(f"--from {stacked.upstream.folder}")


def test_a_range_that_is_broken_from_the_start(stacked: Checkout, history: list[str]) -> None:
    with pytest.raises(PatchError, match="does not apply to") as caught:
        bisect(stacked.layout, f"{history[5]}..{history[8]}")
    assert SECOND in str(caught.value.detail)


@pytest.mark.parametrize(
    ("commits", "refusal"),
    [
        ("HEAD", InputError),
        ("..HEAD", InputError),
        ("HEAD..", InputError),
        ("a...b", InputError),
        ("HEAD..HEAD", InputError),
        ("no-such..HEAD", InputError),
        ("-x..HEAD", InputError),
        ("HEAD..HEAD~3", InputError),
        ("HEAD~3..no-such", FetchError),
    ],
)
def test_refusals(stacked: Checkout, history: list[str], commits: str, refusal: type[DgrError]) -> None:
    del history
    with pytest.raises(refusal) as caught:
        bisect(stacked.layout, commits, source=stacked.upstream.folder)
    assert caught.value.remedy
    assert not (stacked.layout.state / "bump").exists()


def test_without_history(stacked: Checkout, history: list[str], tmp_path: Path) -> None:
    squashed = tmp_path / "squashed"
    run_git("clone", "--quiet", "--depth=1", f"file://{stacked.upstream.folder}", str(squashed), raises=DgrError)
    with pytest.raises(InputError, match="is not there") as caught:
        bisect(stacked.layout, f"{history[0]}..HEAD", source=squashed)
    assert "--from CLONE" in str(caught.value.remedy)


def test_a_conflict_that_waits_is_not_thrown_away(stacked: Checkout, history: list[str]) -> None:
    assert bump(stacked.layout, to=history[5]).worktree is not None
    with pytest.raises(PatchError, match="under way"):
        bisect(stacked.layout, f"{history[0]}..{history[-1]}")


def test_command(stacked: Checkout, history: list[str]) -> None:
    done = stacked.run("patch", "bump", "--bisect", f"{history[0]}..{history[-1]}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["compatible"] == history[4]
    assert f"breaks it: {history[5]}" not in done.stdout
    assert history[5] in done.stderr
