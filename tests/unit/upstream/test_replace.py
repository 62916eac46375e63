"""Several files change as one, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgrctl.errors import IntegrityError, StorageError
from dgrctl.upstream import replace
from dgrctl.upstream.replace import recover, replace_files, replacement_pending


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "b").write_bytes(b"old b")
    (tmp_path / "c").write_bytes(b"kept")
    return tmp_path


def test_writes_and_removes(folder: Path) -> None:
    replace_files(folder, {"a": b"new a", "d": b"new d"}, ["b"])
    assert _contents(folder) == {"a": b"new a", "c": b"kept", "d": b"new d"}


def test_failure_before_the_decision_leaves_the_old_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _contents(folder)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replace.os, "fsync", full)
    with pytest.raises(StorageError):
        replace_files(folder, {"a": b"new a"}, ["b"])
    assert _contents(folder) == before


def test_kill_before_the_decision_is_undone(folder: Path) -> None:
    before = _contents(folder)
    (folder / ".replacing.partial").mkdir()
    (folder / ".replacing.partial" / "a").write_bytes(b"half")
    recover(folder)
    assert _contents(folder) == before


@pytest.mark.parametrize("done", ["nothing", "first file", "all files", "removal", "list gone"])
def test_kill_after_the_decision_is_finished(folder: Path, done: str) -> None:
    decided = folder / ".replacing"
    decided.mkdir()
    (decided / "a").write_bytes(b"new a")
    (decided / "d").write_bytes(b"new d")
    (decided / "removals.json").write_bytes(b'["b"]')
    steps = ["nothing", "first file", "all files", "removal", "list gone"].index(done)
    if steps >= 1:
        (decided / "a").replace(folder / "a")
    if steps >= 2:
        (decided / "d").replace(folder / "d")
    if steps >= 3:
        (folder / "b").unlink()
    if steps >= 4:
        (decided / "removals.json").unlink()
    assert replacement_pending(folder)
    recover(folder)
    assert not replacement_pending(folder)
    assert _contents(folder) == {"a": b"new a", "c": b"kept", "d": b"new d"}


@pytest.mark.parametrize("listed", [b"", b"{}", b'["../a"]', b'["/etc/passwd"]', b"[1]", b"\xff"])
def test_forged_list_of_removals_is_refused(folder: Path, listed: bytes) -> None:
    (folder / ".replacing").mkdir()
    (folder / ".replacing" / "removals.json").write_bytes(listed)
    with pytest.raises(IntegrityError) as caught:
        recover(folder)
    assert "removals.json" in str(caught.value.where)
