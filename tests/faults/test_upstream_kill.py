"""Fetch, apply and export killed at every step, and at random moments: the same command, run again, completes."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from upstream_checkout import FIRST, Checkout

from dgrctl.errors import FetchError
from dgrctl.upstream.bump import bump
from dgrctl.upstream.export import export
from dgrctl.upstream.fetch import fetch, verify_pristine
from dgrctl.upstream.stack import apply, verify_workspace


def next_step(step: int) -> int:
    """Every one of the first, then ever fewer: the later ones are mostly the removal of what the last run left, file by file."""
    return step + 1 + step // 4


def kill_at_one_step_after_the_other(checkout: Checkout, *arguments: str) -> int:
    """Runs the command again and again, each time killed at a later step, on what the last one left; returns the steps."""
    step = 1
    while (done := checkout.run(*arguments, step=str(step))).returncode == -signal.SIGKILL:
        step = next_step(step)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return step


def leftovers(checkout: Checkout) -> list[Path]:
    """What a killed run left; the next run sweeps it, even if it has nothing else to do."""
    state = checkout.layout.state
    return [path for pattern in ("upstream/.*", "workspace/.*", "workspace/*/.git/dgr-*") for path in state.glob(pattern)]


def test_fetch(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "new")
    assert kill_at_one_step_after_the_other(checkout, "fetch") > 10
    verify_pristine(checkout.layout)
    assert leftovers(checkout) == []


def test_fetch_that_replaces(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "fetched")
    (checkout.layout.pristine / "README.md").write_text("changed")
    assert kill_at_one_step_after_the_other(checkout, "fetch", "--force") > 10
    verify_pristine(checkout.layout)
    assert leftovers(checkout) == []


@pytest.mark.parametrize("arguments", [("fetch",), ("patch", "apply")])
def test_leftovers_go_even_if_nothing_else_is_to_do(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The run was killed when all was in place but what it replaced."""
    checkout = Checkout(tmp_path, "stacked")
    killed = checkout.run(*arguments, "--force", step="os.rmdir:")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert leftovers(checkout) != []
    done = checkout.run(*arguments)
    assert "nothing to do" in done.stderr
    assert leftovers(checkout) == []


def test_apply_that_replaces(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    (checkout.layout.workspace / "README.md").write_text("changed")
    assert kill_at_one_step_after_the_other(checkout, "patch", "apply", "--force") > 10
    assert verify_workspace(checkout.layout).applied
    assert leftovers(checkout) == []


# Prepared, decided, the first and the last new file in place, an old one gone, all done: up to the decision the old files hold.
EXPORT_STEPS = {
    "subprocess.Popen:git": "old",
    "os.mkdir:.replacing.partial": "old",
    "open:0002-Core-other.patch": "old",
    "open:removals.json": "old",
    "os.rename:/.replacing": "old",
    "os.rename:0002-Core-other.patch": "new",
    "os.rename:series.lock": "new",
    "os.remove:0002-Core-second.patch": "new",
    "os.rmdir:.replacing": "new",
}


@pytest.mark.parametrize("step", EXPORT_STEPS)
def test_export(tmp_path: Path, step: str) -> None:
    """Two patches dropped, two added: files are written and removed, all or none."""
    checkout = Checkout(tmp_path, "stacked")
    checkout.workspace.run("reset", "--quiet", "--hard", "HEAD~2")
    checkout.commit_change("Core: other", old=b"line_40", new=b"line_forty")
    checkout.commit_change("Core: more")
    own = checkout.workspace.text("rev-parse", "HEAD^{tree}")
    before = checkout.patch_files()
    killed = checkout.run("patch", "export", step=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = checkout.patch_files_or_pending()
    assert left == (before if EXPORT_STEPS[step] == "old" else "pending")
    done = checkout.run("patch", "export")
    assert done.returncode == 0, done.stderr
    result = verify_workspace(checkout.layout)
    assert (result.applied, result.tree) == (True, own)
    assert sorted(checkout.patch_files()) == [FIRST, "0002-Core-other.patch", "0003-Core-more.patch", "series.lock"]


@pytest.mark.parametrize("then", ["apply", "status", "export"])
def test_export_killed_after_its_decision_is_finished_by_the_next_command(tmp_path: Path, then: str) -> None:
    checkout = Checkout(tmp_path, "stacked")
    checkout.commit_change("Core: more")
    killed = checkout.run("patch", "export", step="os.rename:series.lock")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert checkout.patch_files_or_pending() == "pending"
    done = checkout.run("patch", then, "--json")
    assert done.returncode == 0, done.stderr
    if then == "status":
        # It only looks, and says what to do.
        status = json.loads(done.stdout)
        assert not status["applied"]
        assert "killed halfway" in " ".join(status["drift"])
        assert checkout.run("patch").returncode == 0
    assert verify_workspace(checkout.layout).applied
    assert len(verify_workspace(checkout.layout).patches) == 4


def prepared(folder: Path, action: str) -> Checkout:
    """A checkout in which ``action`` has everything to do; the commit to bump to is the upstream's HEAD."""
    checkout = Checkout(folder, "new" if action == "fetch" else "stacked")
    if action == "apply":
        shutil.rmtree(checkout.layout.workspace)
    elif action == "export":
        checkout.commit_change("Core: more")
    elif action == "bump":
        checkout.advance({"README.md": b"moved\n"})
    return checkout


COMMANDS = {
    "fetch": ("fetch",),
    "apply": ("patch",),
    "export": ("patch", "export"),
    "bump": ("patch", "bump", "--to", "HEAD", "--commit", "--no-build"),
}


def bump_again(checkout: Checkout) -> None:
    """Either end is right, and both say what is next; the pin moved only if the patches did."""
    try:
        assert bump(checkout.layout, to="HEAD", commit=True).next_commands == ("dgrctl fetch", "dgrctl patch")
    except FetchError as error:
        assert error.remedy == "dgrctl fetch"  # noqa: PT017 - it was taken before the kill
    fetch(checkout.layout)
    assert apply(checkout.layout).pin == checkout.commit


# The same command again, without the start of another process.
AGAIN: dict[str, Callable[[Checkout], object]] = {
    "fetch": lambda checkout: fetch(checkout.layout),
    "apply": lambda checkout: apply(checkout.layout),
    "export": lambda checkout: export(checkout.layout),
    "bump": bump_again,
}


@pytest.mark.parametrize("action", COMMANDS)
def test_killed_at_random_moments(tmp_path: Path, action: str) -> None:
    """As a person does it: anywhere, also while git works, which then outlives its dgrctl for a moment."""
    whole = prepared(tmp_path / "whole", action)
    started = time.monotonic()
    assert whole.run(*COMMANDS[action]).returncode == 0
    usual = time.monotonic() - started
    generator = random.Random(action)
    for number in range(10):
        checkout = prepared(tmp_path / str(number), action)
        checkout.run_for(generator.uniform(0.1, 1) * usual, *COMMANDS[action])
        AGAIN[action](checkout)
        if action == "fetch":
            verify_pristine(checkout.layout)
        else:
            assert verify_workspace(checkout.layout).applied
