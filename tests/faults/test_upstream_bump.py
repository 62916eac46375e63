"""A bump killed, run twice at once, or out of disk: the old stack or the new one, and a next command that goes on."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from held_commands import holding, start, waits_for
from small_disk import FULL, on_small_disk
from upstream_checkout import FILES, FIRST, SECOND, THIRD, Checkout

from dgrctl.errors import DgrError, FetchError, PatchError
from dgrctl.upstream.bump import abort, bump, resume
from dgrctl.upstream.fetch import fetch
from dgrctl.upstream.git import Repository
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.stack import apply, verify_workspace

CORE = FILES["src/llama.cpp"]
MOVED = {"src/llama.cpp": b"// x\n" * 7 + CORE}
CONFLICT = {"src/llama.cpp": CORE.replace(b"line_30(", b"line_x(")}
RESOLVED = CORE.replace(b"line_30(", b"line_x_thirty(") + b"// new\n"
COMMIT = ("--commit", "--no-build")


def pin_and_patches(checkout: Checkout) -> dict[str, bytes] | str:
    """What a bump replaces; "pending" where that was decided but not finished."""
    files = checkout.patch_files_or_pending()
    return files if isinstance(files, str) else files | {"pin": checkout.layout.upstream_manifest.read_bytes()}


def go_on(checkout: Checkout, again: Callable[[], object]) -> None:
    """Does again what was killed; where the pin has moved already, that says what is next."""
    try:
        again()
    except FetchError as error:
        assert error.remedy == "dgrctl fetch"  # noqa: PT017 - either end is right
    fetch(checkout.layout)
    apply(checkout.layout)


# The candidate proven, the change prepared, decided, half and all done; test_upstream_kill.py kills anywhere.
STEPS = {
    "os.rename:candidate/.dgr/workspace/llama.cpp": "old",
    "os.rename:/.replacing": "old",
    "os.rename:checkout/patches/llama.cpp/series.lock": "pending",
    "os.rename:checkout/manifests/upstream/llama.cpp.toml": "pending",
    "os.rmdir:.replacing": "pending",
}


@pytest.mark.parametrize("step", STEPS)
def test_killed(tmp_path: Path, step: str) -> None:
    checkout = Checkout(tmp_path, "stacked")
    before, commit = pin_and_patches(checkout), checkout.advance(MOVED)
    killed = checkout.run("patch", "bump", "--to", commit, *COMMIT, step=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert pin_and_patches(checkout) == ("pending" if STEPS[step] == "pending" else before)
    go_on(checkout, lambda: bump(checkout.layout, to=commit, commit=True))
    assert load_manifest(checkout.layout).commit == commit
    assert verify_workspace(checkout.layout).patches == (FIRST, SECOND, THIRD)
    assert not list((checkout.layout.root / "manifests" / "upstream").glob(".*"))


def test_killed_while_it_is_taken_and_then_finished_by_patch(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    commit = checkout.advance(MOVED)
    checkout.run("patch", "bump", "--to", commit, *COMMIT, step="os.rename:checkout/manifests/upstream/llama.cpp.toml")
    go_on(checkout, lambda: apply(checkout.layout))
    assert verify_workspace(checkout.layout).pin == commit


# The conflict laid out: nothing, the clone, all but the memory of it.
@pytest.mark.parametrize("step", ["os.rename:state.json", "subprocess.Popen:git", "os.remove:index.lock"])
def test_killed_at_a_conflict(tmp_path: Path, step: str) -> None:
    checkout = Checkout(tmp_path, "stacked")
    before, commit = pin_and_patches(checkout), checkout.advance(CONFLICT)
    killed = checkout.run("patch", "bump", "--to", commit, "--no-build", step=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "dgrctl patch bump --continue" in bump(checkout.layout, to=commit).next_commands
    assert abort(checkout.layout)
    assert pin_and_patches(checkout) == before


# What a person resolved is never lost, and never taken twice.
@pytest.mark.parametrize(
    "step",
    [
        "os.rename:state.json",
        "os.mkdir:/candidate",
        "os.rename:/.replacing",
        "os.rename:checkout/manifests/upstream/llama.cpp.toml",
        "os.remove:state.json",
    ],
)
def test_killed_while_it_goes_on(tmp_path: Path, step: str) -> None:
    checkout = Checkout(tmp_path, "stacked")
    commit = checkout.advance(CONFLICT)
    worktree = bump(checkout.layout, to=commit).worktree
    assert worktree is not None
    (Path(worktree) / "src" / "llama.cpp").write_bytes(RESOLVED)
    Repository(Path(worktree), raises=DgrError).run("add", "src/llama.cpp")
    killed = checkout.run("patch", "bump", "--continue", *COMMIT, step=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    try:
        go_on(checkout, lambda: resume(checkout.layout, commit=True))
    except PatchError as error:
        assert "no bump is under way" in error.what  # noqa: PT017 - it was taken, and the kill came after that
        go_on(checkout, lambda: None)
    assert verify_workspace(checkout.layout).pin == commit
    assert (checkout.layout.workspace / "src" / "llama.cpp").read_bytes() == RESOLVED


def test_second_bump_waits(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    arguments = ("patch", "bump", "--to", checkout.advance(MOVED), "--no-build")
    with holding(checkout, "os.mkdir:/candidate", *arguments) as (first, gate), start(checkout, *arguments) as second:
        waits_for(second, first)
        gate.send(b".")
        _, first_errors = first.communicate()
        _, errors = second.communicate()
    assert (first.returncode, second.returncode) == (0, 0), first_errors + errors


def test_export_goes_on_while_a_bump_is_rehearsed(tmp_path: Path) -> None:
    """And what it writes is not overwritten."""
    checkout = Checkout(tmp_path, "stacked")
    arguments = ("patch", "bump", "--to", checkout.advance(MOVED), *COMMIT)
    with holding(checkout, "os.mkdir:/candidate", *arguments) as (first, gate):
        checkout.commit_change("Core: more", old=b"line_5(", new=b"line_five(")
        exported = checkout.run("patch", "export")
        assert exported.returncode == 0, exported.stderr
        assert "waiting" not in exported.stderr
        gate.send(b".")
        _, errors = first.communicate()
    assert first.returncode != 0
    assert "changed while the bump was proven" in errors
    assert verify_workspace(checkout.layout).patches[-1] == "0004-Core-more.patch"


@pytest.mark.parametrize("step", ["subprocess.Popen:git", "os.mkdir:/candidate", "os.rename:candidate/.dgr/upstream/llama.cpp"])
def test_state_disk_fills_up(tmp_path: Path, step: str) -> None:
    checkout = Checkout(tmp_path, "stacked")
    before, commit = pin_and_patches(checkout), checkout.advance(MOVED)
    state = checkout.layout.state
    command = ("patch", "bump", "--to", commit, "--no-build")
    filling, again = shlex.join(checkout.command(*command, mode="fill", step=step)), shlex.join(checkout.command(*command))
    quiet = "> /dev/null; echo code $?"
    done = on_small_disk(checkout, state, "6m", f"{filling} {quiet}; rm {state}/filler; {again} {quiet}")
    assert "Traceback" not in done.stderr
    assert done.stdout == f"{FULL}code 0\n", done.stderr
    assert pin_and_patches(checkout) == before


def test_patch_folder_fills_up(tmp_path: Path) -> None:
    """Pin and patches stay as they are together."""
    checkout = Checkout(tmp_path, "stacked")
    before, commit = pin_and_patches(checkout), checkout.advance(MOVED)
    patches = checkout.layout.patches
    command = shlex.join(
        checkout.command("patch", "bump", "--to", commit, *COMMIT, mode="fill", step="os.mkdir:.replacing.partial")
    )
    done = on_small_disk(checkout, patches, "64k", f"{command} > /dev/null; echo code $?")
    assert done.stdout == FULL, done.stderr
    assert "free space" in done.stderr
    assert pin_and_patches(checkout) == before


def test_read_only_manifest(tmp_path: Path) -> None:
    """Noticed before anything is decided."""
    checkout = Checkout(tmp_path, "stacked")
    before, commit = pin_and_patches(checkout), checkout.advance(MOVED)
    manifests = checkout.layout.upstream_manifest.parent
    command = shlex.join(checkout.command("patch", "bump", "--to", commit, *COMMIT))
    script = f"mount -o remount,ro {manifests}; {command} > /dev/null; echo code $?; mount -o remount,rw {manifests}"
    done = on_small_disk(checkout, manifests, "64k", script)
    assert done.stdout == FULL, done.stderr
    assert pin_and_patches(checkout) == before
