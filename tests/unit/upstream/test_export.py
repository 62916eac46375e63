"""Exporting: commits become patches and lock, once; and nothing is overwritten that is nobody's to overwrite."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from upstream_checkout import FIRST, SECOND, Checkout

from dgrctl.errors import DgrError, InputError, PatchError, StorageError
from dgrctl.upstream.export import export
from dgrctl.upstream.series import LOCK_NAME
from dgrctl.upstream.stack import apply, verify_workspace


def test_commits_become_patches_and_lock(applied: Checkout) -> None:
    applied.commit_change("Core: first\n\nWhy: because.")
    result = export(applied.layout)
    assert result.written == (FIRST, LOCK_NAME)
    patch = (applied.layout.patches / FIRST).read_text()
    assert patch.startswith(
        "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
        "From: DGR patch stack <patches@dgr.invalid>\n"
        "Date: Thu, 1 Jan 2026 00:00:00 +0000\n"
        "Subject: [PATCH] Core: first\n"
        "\n"
        "Why: because.\n"
        "---\n"
        "\n"
        "diff --git a/src/llama.cpp b/src/llama.cpp\n"
    )
    assert "Tester" not in patch
    assert verify_workspace(applied.layout).applied


def test_second_export_changes_nothing(stacked: Checkout) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in stacked.layout.patches.iterdir()}
    result = export(stacked.layout)
    assert (result.written, result.removed) == ((), ())
    assert {path.name: path.stat().st_mtime_ns for path in stacked.layout.patches.iterdir()} == before


def test_round_trip_through_a_new_workspace(stacked: Checkout) -> None:
    before = stacked.patch_files()
    shutil.rmtree(stacked.layout.workspace)
    apply(stacked.layout)
    assert export(stacked.layout).written == ()
    assert stacked.patch_files() == before


def test_only_what_changed_is_rewritten(stacked: Checkout) -> None:
    stacked.workspace.run(
        "-c", "user.name=T", "-c", "user.email=t@t", "commit", "--quiet", "--amend", "-m", "Llama: third\n\nMore."
    )
    result = export(stacked.layout)
    assert result.written == ("0003-Llama-third.patch", LOCK_NAME)


def test_dropped_and_renamed_commits_take_their_files_with_them(stacked: Checkout) -> None:
    stacked.workspace.run("reset", "--quiet", "--hard", "upstream")
    stacked.commit_change("Core: other")
    result = export(stacked.layout)
    assert result.removed == (FIRST, SECOND, "0003-Llama-third.patch")
    assert sorted(stacked.patch_files()) == ["0001-Core-other.patch", LOCK_NAME]


def test_stack_can_become_empty(stacked: Checkout) -> None:
    stacked.workspace.run("reset", "--quiet", "--hard", "upstream")
    result = export(stacked.layout)
    assert (result.lock.head, result.lock.patches) == (stacked.commit, ())
    assert verify_workspace(stacked.layout).applied


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("src/new.h", b"no newline at the end"),
        ("src/dos.txt", b"three\r\n"),
        ("src/tab\there.txt", b"x\n"),
        ("src/space here.txt", b"x\n"),
        ("src/neu-\xc3\xbc.h".encode().decode("unicode_escape").encode("latin-1").decode(), b"x\n"),
        ("src/spaces.h", b"trailing  \n\t\n\n"),
        ("src/headers.h", b"-- a/x\n++ b/x\n@@ -1 +1 @@\ndiff --git a/x b/x\n"),
    ],
)
def test_awkward_contents_come_through_or_are_refused(applied: Checkout, path: str, new: bytes) -> None:
    applied.commit_change("Core: first", path, new=new)
    if "\t" in path:
        with pytest.raises(PatchError):
            export(applied.layout)
        return
    export(applied.layout)
    shutil.rmtree(applied.layout.workspace)
    apply(applied.layout)
    assert (applied.layout.workspace / path).read_bytes().endswith(new)


def test_removed_files_and_executables_come_through(applied: Checkout) -> None:
    workspace = applied.layout.workspace
    (workspace / "src" / "empty.h").unlink()
    (workspace / "latest.h").unlink()
    (workspace / "tool.sh").write_text("#!/bin/sh\n")
    (workspace / "tool.sh").chmod(0o755)
    applied.commit_change("Core: first")
    export(applied.layout)
    shutil.rmtree(workspace)
    apply(applied.layout)
    assert not (workspace / "src" / "empty.h").exists()
    assert (workspace / "tool.sh").stat().st_mode & 0o100


def test_git_am_takes_the_patches_and_gives_the_same_tree(stacked: Checkout, tmp_path: Path) -> None:
    clone = tmp_path / "plain"
    identity = ["-c", "user.name=Anybody", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "clone", "--quiet", str(stacked.upstream.folder), str(clone)], check=True)
    patches = sorted(str(path) for path in stacked.layout.patches.glob("*.patch"))
    subprocess.run(["git", *identity, "am", "--quiet", "--keep-cr", *patches], cwd=clone, check=True)
    tree = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], cwd=clone, check=True, capture_output=True, text=True).stdout
    assert tree.strip() == verify_workspace(stacked.layout).tree


def _merge(checkout: Checkout) -> None:
    identity = ("-c", "user.name=T", "-c", "user.email=t@t")
    checkout.workspace.run("checkout", "--quiet", "-b", "side", "upstream")
    checkout.commit_change("Side", "src/side.h")
    checkout.workspace.run("checkout", "--quiet", "stack")
    checkout.workspace.run(*identity, "merge", "--quiet", "--no-edit", "side")


def _orphan(checkout: Checkout) -> None:
    checkout.workspace.run("checkout", "--quiet", "--orphan", "alone")
    checkout.commit_change("Alone")


def _empty(checkout: Checkout) -> None:
    checkout.workspace.run("-c", "user.name=T", "-c", "user.email=t@t", "commit", "--quiet", "--allow-empty", "-m", "Empty")


def _latin1(checkout: Checkout) -> None:
    """Written as an object: git commit itself would convert the message."""
    checkout.commit_change("Size")
    raw = checkout.workspace.run("cat-file", "commit", "HEAD").replace(b"\n\nSize", b"\n\nGr\xf6\xdfe")
    commit = checkout.workspace.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw)
    checkout.workspace.run("update-ref", "HEAD", commit)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (_merge, "straight line"),
        (_orphan, "descend|straight line"),
        (_empty, "changes nothing"),
        (_latin1, "not UTF-8"),
        (lambda c: c.commit_change("Binary", "src/blob.bin", new=b"\0\1\2"), "binary"),
        (lambda c: c.commit_change("S\n\ntext\n---\nmore"), "would end it"),
        (lambda c: c.commit_change("Big", new=b"// x\n" * 300), "core: 303 of 249"),
        (lambda c: c.commit_change("Big", "src/models/llama.cpp", new=b"// x\n" * 6), "llama: 7 of 6"),
        (lambda c: c.commit_change("Big", "src/models/deepseek4.cpp", new=b"// x\n" * 41), "deepseek4: 41 of 40"),
        (lambda c: (c.layout.workspace / "src" / "empty.h").write_text("not committed"), "not committed"),
        (lambda c: (c.layout.workspace / "debug.log").write_text("ignored"), "not committed"),
    ],
)
def test_work_that_cannot_become_patches_is_refused_and_kept(
    stacked: Checkout, work: Callable[[Checkout], object], message: str
) -> None:
    work(stacked)
    before, head = stacked.patch_files(), stacked.workspace.resolve("HEAD")
    with pytest.raises(PatchError, match=message):
        export(stacked.layout)
    assert stacked.patch_files() == before
    assert stacked.workspace.resolve("HEAD") == head


def test_largest_stack_that_the_budget_allows(applied: Checkout) -> None:
    applied.commit_change("Core", new=b"// x\n" * 249)
    applied.commit_change("Llama", "src/models/llama.cpp", new=b"// x\n" * 6)
    applied.commit_change("V4", "src/models/deepseek4.cpp", new=b"// x\n" * 40)
    assert export(applied.layout).lock.lines.over_budget() == []


def test_hand_edited_patch_is_not_overwritten(stacked: Checkout) -> None:
    path = stacked.layout.patches / SECOND
    path.write_bytes(path.read_bytes().replace(b"thirty", b"dirty!"))
    with pytest.raises(PatchError, match="edited by hand") as caught:
        export(stacked.layout)
    assert caught.value.where == str(path)


def test_patch_that_somebody_dropped_in_is_not_removed(stacked: Checkout) -> None:
    path = stacked.layout.patches / "0003-Mine.patch"
    path.write_bytes(b"mine")
    with pytest.raises(PatchError, match="not one of the stack's"):
        export(stacked.layout)
    assert path.read_bytes() == b"mine"


def test_missing_patch_is_written_again(stacked: Checkout) -> None:
    before = stacked.patch_files()
    (stacked.layout.patches / FIRST).unlink()
    assert export(stacked.layout).written == (FIRST,)
    assert stacked.patch_files() == before


def test_without_workspace_or_lock_there_is_nothing_to_export(fetched: Checkout) -> None:
    with pytest.raises(PatchError, match="no workspace"):
        export(fetched.layout)
    (fetched.layout.patches / LOCK_NAME).unlink()
    with pytest.raises(InputError):
        export(fetched.layout)


def test_workspace_of_another_pin_is_not_exported(stacked: Checkout) -> None:
    stacked.write_manifest(f'[[transports]]\nkind = "git"\nurl = "file://{stacked.upstream.folder}"\n', commit="1" * 40)
    with pytest.raises(PatchError, match="another pin"):
        export(stacked.layout)


def test_full_disk_leaves_the_old_files(stacked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    stacked.commit_change("Core: fourth")
    before = stacked.patch_files()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        export(stacked.layout)
    assert stacked.patch_files() == before


def test_export_killed_before_it_moved_head_is_finished_by_apply(stacked: Checkout) -> None:
    """The files are the new ones, HEAD is still the user's own commit: the same patches, so nothing is lost by moving it."""
    stacked.commit_change("Core: fourth")
    own = stacked.workspace.text("rev-parse", "HEAD")
    export(stacked.layout)
    stacked.workspace.run("update-ref", "HEAD", own)
    stacked.workspace.run("update-ref", "refs/dgr/applied", "HEAD~1")
    with pytest.raises(DgrError):
        verify_workspace(stacked.layout)
    assert apply(stacked.layout).applied
    assert verify_workspace(stacked.layout).workspace_head != own
