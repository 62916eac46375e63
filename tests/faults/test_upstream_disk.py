"""A disk that fills up or cannot be written: an error that says so, nothing half made, and the same command completes later."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from small_disk import FULL, on_small_disk
from upstream_checkout import Checkout, Stage

from dgrctl.errors import StorageError
from dgrctl.upstream.fetch import verify_pristine
from dgrctl.upstream.stack import verify_workspace


@pytest.mark.parametrize(
    ("stage", "arguments", "step"),
    [
        ("new", ("fetch",), "os.mkdir:.partial"),
        ("new", ("fetch",), "subprocess.Popen:git"),
        ("fetched", ("patch",), "os.mkdir:.partial"),
        ("fetched", ("patch",), "open:attributes"),
        ("fetched", ("patch",), "os.rename:/workspace/llama.cpp"),
    ],
)
def test_state_disk_fills_up(tmp_path: Path, stage: Stage, arguments: tuple[str, ...], step: str) -> None:
    checkout = Checkout(tmp_path, stage)
    filling = shlex.join(checkout.command(*arguments, mode="fill", step=step))
    again = shlex.join(checkout.command(*arguments))
    state = checkout.layout.state
    script = f"{filling}; echo code $?; ls -A {state}/*; rm {state}/filler; {again}; echo code $?"
    done = on_small_disk(checkout, state, "2m", script)
    assert "Traceback" not in done.stderr
    if done.stdout.startswith("code 0"):
        # A rename needs no space.
        assert step.startswith("os.rename")
    else:
        assert done.stdout.startswith(FULL), done.stderr
        assert "free space" in done.stderr
    assert done.stdout.endswith("code 0\n"), done.stderr
    verify_pristine(checkout.layout)
    if arguments == ("patch",):
        assert verify_workspace(checkout.layout).applied


def test_patch_folder_fills_up(tmp_path: Path) -> None:
    """The old files stay as they are, and the export is repeated when there is space."""
    checkout = Checkout(tmp_path, "stacked")
    checkout.commit_change("Core: more")
    before = checkout.patch_files()
    patches = checkout.layout.patches
    export = shlex.join(checkout.command("patch", "export", mode="fill", step="os.mkdir:.replacing.partial"))
    done = on_small_disk(checkout, patches, "64k", f"{export}; echo code $?; ls -A {patches}")
    assert done.stdout.startswith(FULL), done.stderr
    assert "free space" in done.stderr
    assert checkout.patch_files() == before
    assert checkout.run("patch", "export").returncode == 0
    assert verify_workspace(checkout.layout).applied


def test_read_only_patches(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    checkout.commit_change("Core: more")
    before = checkout.patch_files()
    patches = checkout.layout.patches
    export, apply = (shlex.join(checkout.command("patch", action)) for action in ("export", "apply"))
    script = (
        f"git -C {checkout.layout.workspace} update-ref refs/kept HEAD; mount -o remount,ro {patches}; {export}; echo code $?"
    )
    script += f"; {apply} --force; echo code $?; mount -o remount,rw {patches}"
    done = on_small_disk(checkout, patches, "1m", script)
    # Applying only reads them.
    assert done.stdout == f"code {StorageError.exit_code}\ncode 0\n", done.stderr
    assert checkout.patch_files() == before


def test_read_only_state(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "fetched")
    state = checkout.layout.state
    apply = shlex.join(checkout.command("patch"))
    script = f"mount -o remount,ro {state}; {apply}; echo code $?; mount -o remount,rw {state}"
    done = on_small_disk(checkout, state, "2m", script)
    assert done.stdout == FULL, done.stderr
    assert "Traceback" not in done.stderr
    assert "make that disk writable" in done.stderr
