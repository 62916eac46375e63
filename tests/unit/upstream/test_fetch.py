"""Whatever brings upstream, it ends in the same proof; and what is there is proven again each time."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from upstream_checkout import Checkout

from dgrctl.errors import DgrError, FetchError, IntegrityError, UsageError
from dgrctl.upstream import transports
from dgrctl.upstream.fetch import fetch, verify_pristine
from dgrctl.upstream.git import run_git

NOWHERE = '[[transports]]\nkind = "git"\nurl = "file:///nowhere/at/all"\n'


def _leftovers(checkout: Checkout) -> list[str]:
    return [path.name for path in checkout.layout.pristine.parent.iterdir() if path.name.startswith(".")]


def test_git_brings_the_pin_alone(checkout: Checkout) -> None:
    result = fetch(checkout.layout)
    assert (result.commit, result.transport, result.changed) == (checkout.commit, "git", True)
    verify_pristine(checkout.layout)
    assert _leftovers(checkout) == []
    pristine = checkout.layout.pristine
    refs = run_git("--git-dir", str(pristine / ".git"), "for-each-ref", raises=DgrError)
    assert refs == b""
    assert (pristine / ".git" / "HEAD").read_text().strip() == checkout.commit


def test_second_fetch_changes_nothing(fetched: Checkout) -> None:
    shutil.rmtree(fetched.upstream.folder)
    result = fetch(fetched.layout)
    assert (result.transport, result.changed) == (None, False)


def _bundle(checkout: Checkout, target: Path) -> None:
    checkout.upstream.run("bundle", "create", str(target), "HEAD", "main")


def _bare(checkout: Checkout, target: Path) -> None:
    checkout.upstream.run("clone", "--quiet", "--bare", ".", str(target))


def _shallow(checkout: Checkout, target: Path) -> None:
    run_git("clone", "--quiet", "--depth=1", f"file://{checkout.upstream.folder}", str(target), raises=DgrError)


def _bundle_of_shallow(checkout: Checkout, target: Path) -> None:
    _shallow(checkout, target.with_name("shallow"))
    run_git("-C", str(target.with_name("shallow")), "bundle", "create", str(target), "HEAD", raises=DgrError)


def _detached(checkout: Checkout, target: Path) -> None:
    """The pin is on no branch."""
    shutil.copytree(checkout.upstream.folder, target, symlinks=True)
    for arguments in (("checkout", "--quiet", "--detach"), ("branch", "--force", "main", "HEAD~1")):
        run_git("-C", str(target), *arguments, raises=DgrError)


def _dirty(checkout: Checkout, target: Path) -> None:
    """Somebody works in that clone; what they changed does not come along."""
    shutil.copytree(checkout.upstream.folder, target, symlinks=True)
    (target / "src" / "empty.h").write_text("changed")


def _many_refs(checkout: Checkout, target: Path) -> None:
    shutil.copytree(checkout.upstream.folder, target, symlinks=True)
    commands = "".join(f"create refs/tags/b{number} {checkout.commit}\n" for number in range(200))
    run_git("-C", str(target), "update-ref", "--stdin", raises=DgrError, stdin=commands.encode())


def _hooked(checkout: Checkout, target: Path) -> None:
    shutil.copytree(checkout.upstream.folder, target, symlinks=True)
    (target / ".git" / "hooks").mkdir()
    (target / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\nexit 1\n")
    (target / ".git" / "hooks" / "post-checkout").chmod(0o755)
    with (target / ".git" / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = false && touch /nowhere/fsmonitor\n\tautocrlf = true\n")


def _of_another_user(checkout: Checkout, target: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a clone to another user")
    shutil.copytree(checkout.upstream.folder, target, symlinks=True)
    for path in [target, *target.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)


@pytest.mark.parametrize(
    "make", [_bundle, _bundle_of_shallow, _bare, _shallow, _detached, _dirty, _many_refs, _hooked, _of_another_user]
)
def test_bundle_or_clone_of_the_user(checkout: Checkout, tmp_path: Path, make: Callable[[Checkout, Path], None]) -> None:
    source = tmp_path / "source with space"
    make(checkout, source)
    result = fetch(checkout.layout, source=source)
    assert (result.commit, result.transport) == (checkout.commit, "path")
    verify_pristine(checkout.layout)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"# v2 git bundle\n" + b"\0" * 100),
        os.mkfifo,
    ],
)
def test_source_that_is_none_is_refused(checkout: Checkout, tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "source")
    with pytest.raises(FetchError):
        fetch(checkout.layout, source=tmp_path / "source")
    assert not checkout.layout.pristine.exists()
    assert _leftovers(checkout) == []


def test_source_without_the_pin_is_refused(checkout: Checkout) -> None:
    checkout.write_manifest(checkout.git_transport(), commit="1" * 40)
    with pytest.raises(FetchError) as caught:
        fetch(checkout.layout, source=checkout.upstream.folder)
    assert f"no branch or tag there reaches commit {'1' * 40}" in str(caught.value.detail)


def test_commit_with_another_tree_is_refused(checkout: Checkout) -> None:
    checkout.write_manifest(checkout.git_transport(), tree="1" * 40)
    with pytest.raises(FetchError) as caught:
        fetch(checkout.layout)
    assert "1" * 40 in str(caught.value.detail)
    assert not checkout.layout.pristine.exists()


def test_damaged_object_is_found_on_arrival(checkout: Checkout, tmp_path: Path) -> None:
    """A blob outside the pin's own tree, which only fsck looks at."""
    bundle = tmp_path / "damaged"
    shutil.copytree(checkout.upstream.folder, bundle, symlinks=True)
    blob = checkout.upstream.text("rev-parse", "HEAD~1:README.md")
    path = bundle / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FetchError):
        fetch(checkout.layout, source=bundle)
    assert not checkout.layout.pristine.exists()


def test_next_transport_is_tried_and_all_failures_are_told(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = (
        '[[transports]]\nkind = "sdist"\npackage = "no-such"\nversion = "1.0"\nbytes = 1\n'
        f'sha256 = "{"0" * 64}"\ngit_dir = ".git"\n'
    )
    checkout.write_manifest(NOWHERE + absent)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(FetchError) as caught:
        fetch(checkout.layout)
    assert "git: " in str(caught.value.detail)
    assert "/nowhere/at/all" in str(caught.value.detail)
    assert "sdist: no-such==1.0" in str(caught.value.detail)
    assert "--from PATH" in str(caught.value.remedy)
    assert _leftovers(checkout) == []


def test_server_that_never_answers_is_bounded(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "_CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/x"
        checkout.write_manifest(f'[[transports]]\nkind = "git"\nurl = "{url}"\n')
        with pytest.raises(FetchError) as caught:
            fetch(checkout.layout)
    assert "no answer within" in str(caught.value.detail)


def test_one_transport_can_be_chosen(checkout: Checkout, tmp_path: Path) -> None:
    assert fetch(checkout.layout, transport="git").transport == "git"
    with pytest.raises(UsageError, match="no transport 'sdist'"):
        fetch(checkout.layout, transport="sdist")
    with pytest.raises(UsageError):
        fetch(checkout.layout, transport="git", source=tmp_path)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda root: (root / "src/llama.cpp").write_bytes((root / "src/llama.cpp").read_bytes()[:-2] + b"}\n"), "src/llama.cpp"),
        (lambda root: (root / "src/more.h").write_bytes(b""), "src/more.h"),
        (lambda root: (root / "debug.log").write_bytes(b""), "debug.log"),
        (lambda root: (root / "models/kept.gguf").unlink(), "models/kept.gguf"),
        (lambda root: (root / ".git/HEAD").write_text("0" * 40 + "\n"), ""),
        (lambda root: shutil.rmtree(root / ".git"), ""),
        (lambda root: (shutil.rmtree(root), root.mkdir()), ""),
        (lambda root: (shutil.rmtree(root), root.write_bytes(b"")), ""),
    ],
)
def test_changed_pristine_is_refused_by_name_and_replaced_by_force(
    fetched: Checkout, edit: Callable[[Path], object], named: str
) -> None:
    pristine = fetched.layout.pristine
    edit(pristine)
    for check in (fetch, verify_pristine):
        with pytest.raises(IntegrityError) as caught:
            check(fetched.layout)
        assert caught.value.where == str(pristine / named)
        assert "fetch --force" in str(caught.value.remedy)
    assert fetch(fetched.layout, force=True).changed
    verify_pristine(fetched.layout)
    assert _leftovers(fetched) == []


def test_former_pin_is_replaced_without_force(fetched: Checkout) -> None:
    fetched.move_pin_back()
    with pytest.raises(FetchError, match="not the pin any more"):
        verify_pristine(fetched.layout)
    assert fetch(fetched.layout).changed
    verify_pristine(fetched.layout)


def test_changed_former_pin_is_refused(fetched: Checkout) -> None:
    fetched.move_pin_back()
    (fetched.layout.pristine / "notes.txt").write_text("mine")
    with pytest.raises(IntegrityError):
        fetch(fetched.layout)


def test_failed_fetch_by_force_leaves_the_old_one(fetched: Checkout) -> None:
    fetched.write_manifest(NOWHERE)
    with pytest.raises(FetchError):
        fetch(fetched.layout, force=True)
    verify_pristine(fetched.layout)


def test_not_fetched_yet_is_said(checkout: Checkout) -> None:
    with pytest.raises(FetchError, match="not fetched yet") as caught:
        verify_pristine(checkout.layout)
    assert caught.value.remedy == "dgrctl fetch"


@pytest.mark.parametrize("bare", [True, False])
def test_commit_that_no_branch_reaches_is_fetched_by_its_id(checkout: Checkout, tmp_path: Path, bare: bool) -> None:
    mirror = tmp_path / "mirror"
    options = ["--mirror"] if bare else []
    source = f"file://{checkout.upstream.folder}"
    run_git("clone", "--quiet", *options, source, str(mirror), raises=FetchError)
    git_directory = mirror if bare else mirror / ".git"
    names = run_git(f"--git-dir={git_directory}", "for-each-ref", "--format=%(refname)", raises=FetchError).decode().split()
    for name in names:
        run_git(f"--git-dir={git_directory}", "update-ref", "--no-deref", name, f"{checkout.commit}~1", raises=FetchError)
    fetch(checkout.layout, source=mirror)


def test_bundle_without_the_commit_says_that_nothing_reaches_it(checkout: Checkout, tmp_path: Path) -> None:
    bundle = tmp_path / "old.bundle"
    checkout.upstream.run("branch", "old", "HEAD~1")
    checkout.upstream.run("bundle", "create", "--quiet", str(bundle), "old")
    with pytest.raises(FetchError) as caught:
        fetch(checkout.layout, source=bundle)
    assert "no branch or tag there reaches commit" in str(caught.value) + str(caught.value.detail)
