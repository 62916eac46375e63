"""Whatever differs on disk is found, however well it hides."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upstream_checkout import Checkout, commit_all

from dgrctl.errors import DgrError, IntegrityError
from dgrctl.upstream.git import Repository, run_git
from dgrctl.upstream.worktree import Difference, differences, name_some, snapshot


def _found(repository: Repository) -> list[str]:
    tree = repository.text("rev-parse", "HEAD^{tree}")
    return [str(difference) for difference in differences(repository, tree, snapshot(repository.folder))]


def test_clean_tree_has_the_id_that_git_gives_it(checkout: Checkout) -> None:
    assert snapshot(checkout.upstream.folder).tree == checkout.upstream.text("rev-parse", "HEAD^{tree}")
    assert _found(checkout.upstream) == []


def test_empty_folder_is_the_empty_tree(tmp_path: Path) -> None:
    run_git("init", "--quiet", str(tmp_path), raises=DgrError)
    assert snapshot(tmp_path).tree == Repository(tmp_path, raises=DgrError).text("hash-object", "-t", "tree", os.devnull)


def _flip_byte_in_place(root: Path) -> None:
    """Same size, same modification time, and git's index says nothing of it."""
    path = root / "src" / "llama.cpp"
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        # A relative name: the absolute one may be too long for a socket.
        before = Path.cwd()
        os.chdir(root)
        try:
            listener.bind("s")
        finally:
            os.chdir(before)


def _relink(root: Path) -> None:
    (root / "latest.h").unlink()
    (root / "latest.h").symlink_to("src/dos.txt")


def _file_for_link(root: Path) -> None:
    (root / "latest.h").unlink()
    (root / "latest.h").write_bytes(b"src/empty.h")


def _folder_for_file(root: Path) -> None:
    (root / "README.md").unlink()
    (root / "README.md").mkdir()
    (root / "README.md" / "x").write_bytes(b"")


def _nested_repository(root: Path) -> None:
    (root / "src" / ".git").mkdir()
    (root / "src" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


CHANGES: list[tuple[Callable[[Path], object], list[str]]] = [
    (_flip_byte_in_place, ["src/llama.cpp (changed)"]),
    (lambda root: (root / "README.md").unlink(), ["README.md (missing)"]),
    (lambda root: (root / "build-scripts/run.sh").chmod(0o644), ["build-scripts/run.sh (mode changed)"]),
    (lambda root: (root / "src/empty.h").chmod(0o755), ["src/empty.h (mode changed)"]),
    (lambda root: (root / "new.h").write_bytes(b""), ["new.h (extra)"]),
    (lambda root: (root / "debug.log").write_bytes(b"ignored"), ["debug.log (extra)"]),
    (lambda root: ((root / "build").mkdir(), (root / "build" / "x.o").write_bytes(b"")), ["build/x.o (extra)"]),
    (lambda root: (root / "models/kept.gguf").write_bytes(b"tracked, though ignored"), ["models/kept.gguf (changed)"]),
    (lambda root: (root / "src/dos.txt").write_bytes(b"one\ntwo\n"), ["src/dos.txt (changed)"]),
    (_relink, ["latest.h (changed)"]),
    (_file_for_link, ["latest.h (mode changed)"]),
    (_folder_for_file, ["README.md (missing)", "README.md/x (extra)"]),
    (lambda root: os.mkfifo(root / "pipe"), ["pipe (extra)"]),
    (_socket, ["s (extra)"]),
    (_nested_repository, ["src/.git/HEAD (extra)"]),
    (lambda root: (root / os.fsdecode(b"bad-\xff")).write_bytes(b""), ["bad-\\udcff (extra)"]),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_every_kind_of_change_is_named(checkout: Checkout, change: Callable[[Path], object], expected: list[str]) -> None:
    change(checkout.upstream.folder)
    assert _found(checkout.upstream) == expected


def test_change_that_the_index_was_told_to_ignore_is_named(checkout: Checkout) -> None:
    checkout.upstream.run("update-index", "--assume-unchanged", "README.md")
    (checkout.upstream.folder / "README.md").write_text("changed")
    assert checkout.upstream.run("status", "--porcelain") == b""
    assert _found(checkout.upstream) == ["README.md (changed)"]


def test_change_that_was_staged_is_named(checkout: Checkout) -> None:
    (checkout.upstream.folder / "README.md").write_text("changed")
    checkout.upstream.run("add", "README.md")
    assert _found(checkout.upstream) == ["README.md (changed)"]


def test_empty_folders_and_times_do_not_count(checkout: Checkout) -> None:
    (checkout.upstream.folder / "nothing" / "in" / "it").mkdir(parents=True)
    os.utime(checkout.upstream.folder / "README.md", (0, 0))
    assert _found(checkout.upstream) == []


def test_damaged_object_store_is_not_taken_for_a_clean_tree(checkout: Checkout) -> None:
    """The tree object is replaced by one that lists a changed file, under the old name."""
    repository = checkout.upstream
    tree = repository.text("rev-parse", "HEAD^{tree}")
    (repository.folder / "README.md").write_text("changed")
    other = repository.text("rev-parse", f"{commit_all(repository, 'Other')}^{{tree}}")
    objects = repository.folder / ".git" / "objects"
    forged = objects / tree[:2] / tree[2:]
    forged.chmod(0o644)
    forged.write_bytes((objects / other[:2] / other[2:]).read_bytes())
    with pytest.raises(DgrError):
        differences(repository, tree, snapshot(repository.folder))


def test_what_cannot_be_read_is_named(checkout: Checkout) -> None:
    with pytest.raises(IntegrityError) as caught:
        snapshot(checkout.upstream.folder / "absent")
    assert "absent" in str(caught.value.where)


def test_long_lists_are_cut() -> None:
    found = [Difference(f"file-{number}", "changed") for number in range(12)]
    assert name_some(found, 10).splitlines()[-1] == "… and 2 more"


_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in {".", ".."} and not name.lower().startswith(".git") and len(name.encode()) < 200
)


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.tuples(_NAMES, _NAMES), st.tuples(st.binary(max_size=64), st.booleans()), min_size=1, max_size=8))
def test_any_tree_hashes_as_git_hashes_it(
    tmp_path_factory: pytest.TempPathFactory, files: dict[tuple[str, str], tuple[bytes, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    run_git("init", "--quiet", str(folder), raises=DgrError)
    for (above, name), (content, executable) in files.items():
        path = folder / above / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if executable else 0o644)
    repository = Repository(folder, raises=DgrError)
    repository.run("add", "--all", "--force")
    assert snapshot(folder).tree == repository.text("write-tree")
