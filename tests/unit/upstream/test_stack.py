"""Applying: deterministic, strict, never over somebody's work, and nothing to do the second time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from upstream_checkout import FIRST, SECOND, THIRD, Checkout

from dgrctl.errors import FetchError, IntegrityError, PatchError
from dgrctl.upstream.export import export
from dgrctl.upstream.fetch import fetch
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.patchfile import parse_patch
from dgrctl.upstream.series import LOCK_NAME, make_lock, render_lock
from dgrctl.upstream.stack import apply, status, verify_workspace


def _edit_lock(checkout: Checkout, **fields: str) -> None:
    path = checkout.layout.patches / LOCK_NAME
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))


def test_nothing_is_applied_before_fetch(checkout: Checkout) -> None:
    with pytest.raises(FetchError) as caught:
        apply(checkout.layout)
    assert caught.value.remedy == "dgrctl fetch"
    assert not checkout.layout.workspace.exists()


def test_empty_stack_gives_the_pin(applied: Checkout) -> None:
    result = verify_workspace(applied.layout)
    assert (result.head, result.pin, result.applied, result.patches) == (applied.commit, applied.commit, True, ())


def test_second_apply_changes_nothing(stacked: Checkout) -> None:
    before = stacked.layout.workspace.stat().st_ino
    assert not apply(stacked.layout).changed
    assert stacked.layout.workspace.stat().st_ino == before


def test_head_is_the_same_after_a_new_apply(stacked: Checkout) -> None:
    head = stacked.workspace.resolve("HEAD")
    shutil.rmtree(stacked.layout.workspace)
    result = apply(stacked.layout)
    assert result.changed
    assert result.applied
    assert (result.workspace_head, result.head) == (head, head)
    assert stacked.workspace.text("log", "-1", "--format=%an <%ae> %aI | %cn <%ce> %cI | %s") == (
        "DGR patch stack <patches@dgr.invalid> 2026-01-01T00:00:00+00:00 | "
        "DGR patch stack <patches@dgr.invalid> 2026-01-01T00:00:00+00:00 | Llama: third"
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index"},
        {"GIT_AUTHOR_NAME": "Eve", "GIT_COMMITTER_DATE": "2001-01-01T00:00:00", "GIT_AUTHOR_EMAIL": "eve@example.org"},
        {"LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati", "USER": "somebody", "HOME": "{home}"},
        {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true", "XDG_CONFIG_HOME": "{home}"},
        {"GIT_CONFIG_PARAMETERS": "'commit.gpgsign'='true' 'core.hookspath'='{home}/hooks'", "GIT_TRACE": "1"},
    ],
)
def test_head_is_the_same_for_every_user_and_configuration(
    stacked: Checkout, tmp_path: Path, environment: dict[str, str]
) -> None:
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    for hook in ("post-checkout", "pre-commit", "post-commit", "reference-transaction"):
        (home / "hooks" / hook).write_text("#!/bin/sh\nexit 1\n")
        (home / "hooks" / hook).chmod(0o755)
    (home / "git").mkdir()
    (home / "git" / "attributes").write_text("* text eol=crlf\n")
    (home / ".gitconfig").write_text(
        "[core]\nautocrlf = true\nhooksPath = ~/hooks\n[commit]\ngpgSign = true\n[apply]\nwhitespace = fix\n"
        "[diff]\nnoprefix = true\ncontext = 7\n[user]\nname = Eve\nemail = eve@example.org\n[init]\ndefaultBranch = eve\n"
    )
    shutil.rmtree(stacked.layout.workspace)
    expected = status(stacked.layout)
    done = stacked.run("patch", "--json", **{name: value.format(home=home) for name, value in environment.items()})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["applied"], result["workspace_head"]) == (True, expected.head)
    again = stacked.run("patch", "export", "--json", **{name: value.format(home=home) for name, value in environment.items()})
    assert json.loads(again.stdout)["written"] == []


def test_checkout_inside_another_repository_is_the_same(tmp_path: Path) -> None:
    outer = Checkout(tmp_path)
    inner = Checkout(outer.upstream.folder / "vendor")
    fetch(inner.layout)
    assert apply(inner.layout).workspace_head == inner.commit
    assert outer.upstream.resolve("HEAD") == outer.commit


def test_patch_that_gives_another_tree_than_the_lock_is_refused(stacked: Checkout) -> None:
    shutil.rmtree(stacked.layout.workspace)
    _edit_lock(stacked, tree="0" * 40)
    with pytest.raises(PatchError) as caught:
        apply(stacked.layout)
    assert LOCK_NAME in str(caught.value.where)
    assert not stacked.layout.workspace.exists()


@pytest.mark.parametrize("field", ["tree", "head"])
def test_edited_lock_is_named_though_the_workspace_is_right(stacked: Checkout, field: str) -> None:
    _edit_lock(stacked, **{field: "0" * 40})
    for check in (apply, verify_workspace):
        with pytest.raises(PatchError) as caught:
            check(stacked.layout)
        assert LOCK_NAME in str(caught.value.where)
    assert not status(stacked.layout).applied


def test_edited_patch_is_named_by_every_step(stacked: Checkout) -> None:
    path = stacked.layout.patches / SECOND
    path.write_bytes(path.read_bytes().replace(b"thirty", b"dirty!"))
    for check in (apply, verify_workspace):
        with pytest.raises(PatchError) as caught:
            check(stacked.layout)
        assert caught.value.where == str(path)
    result = status(stacked.layout)
    assert not result.applied
    assert str(path) in result.drift[0]


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("src/llama.cpp", lambda path: path.write_bytes(path.read_bytes().replace(b"line_7(", b"line_8("))),
        ("build/x.o", lambda path: (path.parent.mkdir(), path.write_bytes(b"ignored"))),
        ("src/dos.txt", lambda path: path.unlink()),
        ("build-scripts/run.sh", lambda path: path.chmod(0o644)),
    ],
)
def test_changed_workspace_is_refused_by_name(stacked: Checkout, path: str, edit: object) -> None:
    assert callable(edit)
    edit(stacked.layout.workspace / path)
    for check in (apply, verify_workspace):
        with pytest.raises(IntegrityError) as caught:
            check(stacked.layout)
        assert caught.value.where == str(stacked.layout.workspace / path)
        assert "dgrctl patch export" in str(caught.value.remedy)
        assert "dgrctl patch apply --force" in str(caught.value.remedy)
    result = status(stacked.layout)
    assert (result.applied, result.dirty) == (False, (path,))
    assert apply(stacked.layout, force=True).applied
    assert verify_workspace(stacked.layout).applied


def test_commits_of_somebody_are_not_thrown_away(stacked: Checkout) -> None:
    stacked.commit_change("Core: fourth")
    head = stacked.workspace.resolve("HEAD")
    for check in (apply, verify_workspace):
        with pytest.raises(PatchError, match="commits that are in no patch"):
            check(stacked.layout)
    assert stacked.workspace.resolve("HEAD") == head
    result = status(stacked.layout)
    assert (result.applied, result.workspace_head) == (False, head)
    assert "in no patch" in result.drift[0]
    assert apply(stacked.layout, force=True).applied


def test_head_moved_back_is_noticed(stacked: Checkout) -> None:
    stacked.workspace.run("reset", "--quiet", "--hard", "HEAD~1")
    with pytest.raises(PatchError):
        verify_workspace(stacked.layout)


def test_detached_head_at_the_right_commit_is_fine(stacked: Checkout) -> None:
    stacked.workspace.run("checkout", "--quiet", "--detach", "HEAD")
    assert verify_workspace(stacked.layout).applied


def test_stack_that_moved_on_is_applied_anew(stacked: Checkout) -> None:
    """As after a git pull: the workspace is what dgrctl made of the former stack, so nothing is lost."""
    later = stacked.patch_files()
    stacked.workspace.run("reset", "--quiet", "--hard", "HEAD~1")
    export(stacked.layout)
    for name, data in later.items():
        (stacked.layout.patches / name).write_bytes(data)
    with pytest.raises(PatchError, match="the stack changed since it was applied"):
        verify_workspace(stacked.layout)
    result = apply(stacked.layout)
    assert (result.changed, result.applied, len(result.patches)) == (True, True, 3)


def test_moved_pin_is_followed(stacked: Checkout) -> None:
    stacked.move_pin_back()
    with pytest.raises(FetchError, match="not the pin any more"):
        apply(stacked.layout)
    fetch(stacked.layout)
    result = apply(stacked.layout)
    assert (result.applied, result.workspace_head) == (True, stacked.commit)


def test_patch_that_applies_only_with_an_offset_is_refused(stacked: Checkout) -> None:
    """Its lock is right in everything, but the blob that it starts from is another."""
    lines = [
        (stacked.layout.patches / SECOND).read_bytes(),
        (stacked.layout.patches / FIRST).read_bytes(),
    ]
    names = ("0001-Core-second.patch", "0002-Core-first.patch")
    for old in (FIRST, SECOND):
        (stacked.layout.patches / old).unlink()
    for name, data in zip(names, lines, strict=True):
        (stacked.layout.patches / name).write_bytes(data)
    _relock(stacked, (*names, THIRD))
    with pytest.raises(PatchError, match="not exactly where") as caught:
        apply(stacked.layout, force=True)
    assert caught.value.where == str(stacked.layout.patches / names[0])


def test_patch_that_does_not_apply_is_refused(stacked: Checkout) -> None:
    (stacked.layout.patches / FIRST).write_bytes(
        (stacked.layout.patches / FIRST).read_bytes().replace(b" int line_59(void);", b" int line_77(void);")
    )
    _relock(stacked, (FIRST, SECOND, THIRD))
    with pytest.raises(PatchError, match="does not apply") as caught:
        apply(stacked.layout, force=True)
    assert caught.value.where == str(stacked.layout.patches / FIRST)
    # A failed apply, even a forced one, removes nothing.
    assert stacked.workspace.is_repository()


def _relock(checkout: Checkout, names: tuple[str, ...]) -> None:
    """A lock that is right for the patch files, except for the tree and HEAD."""
    files = {name: (checkout.layout.patches / name).read_bytes() for name in names}
    patches = [parse_patch(data, name) for name, data in files.items()]
    lock = make_lock(load_manifest(checkout.layout), files, patches, tree="1" * 40, head="2" * 40)
    (checkout.layout.patches / LOCK_NAME).write_bytes(render_lock(lock))


def test_patches_that_write_outside_the_tree_are_refused(stacked: Checkout, tmp_path: Path) -> None:
    path = stacked.layout.patches / FIRST
    path.write_bytes(path.read_bytes().replace(b"/src/llama.cpp", b"/../../escaped.txt"))
    _relock(stacked, (FIRST, SECOND, THIRD))
    with pytest.raises(PatchError) as caught:
        apply(stacked.layout, force=True)
    assert caught.value.where == str(path)
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("make", [lambda path: path.mkdir(parents=True), lambda path: path.write_bytes(b"x")])
def test_something_else_at_the_workspace_is_refused(fetched: Checkout, make: object) -> None:
    assert callable(make)
    fetched.layout.workspace.parent.mkdir(parents=True)
    make(fetched.layout.workspace)
    with pytest.raises(PatchError, match="not the git clone"):
        apply(fetched.layout)
    assert "not the git clone" in status(fetched.layout).drift[0]
    assert apply(fetched.layout, force=True).applied


def test_changed_pristine_is_refused_before_it_is_used(fetched: Checkout) -> None:
    (fetched.layout.pristine / "src" / "empty.h").write_bytes(b"x")
    with pytest.raises(IntegrityError) as caught:
        apply(fetched.layout)
    assert "empty.h" in str(caught.value.where)
    assert not fetched.layout.workspace.exists()


def test_own_git_in_the_workspace_changes_no_bytes(stacked: Checkout) -> None:
    """What a user with core.autocrlf commits is still what lies on disk."""
    workspace = stacked.workspace
    assert workspace.text("config", "--local", "core.autocrlf") == "false"
    assert workspace.text("check-attr", "text", "eol", "filter", "--", "src/dos.txt").splitlines()[0].endswith("unset")
    assert workspace.resolve("upstream") == stacked.commit
