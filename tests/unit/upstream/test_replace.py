"""Several files change as one, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgrctl.errors import IntegrityError, StorageError
from dgrctl.layout import Layout
from dgrctl.upstream.replace import recover, replace_files, replacement_pending


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.patches.mkdir(parents=True)
    (layout.patches / "a").write_bytes(b"old a")
    (layout.patches / "b").write_bytes(b"old b")
    (layout.patches / "c").write_bytes(b"kept")
    layout.upstream_manifest.parent.mkdir(parents=True)
    layout.upstream_manifest.write_bytes(b"old pin")
    return layout


@pytest.fixture
def folder(layout: Layout) -> Path:
    return layout.patches


def test_writes_and_removes(layout: Layout, folder: Path) -> None:
    replace_files(layout, {"a": b"new a", "d": b"new d"}, ["b"])
    assert _contents(folder) == {"a": b"new a", "c": b"kept", "d": b"new d"}


def test_failure_before_the_decision_leaves_the_old_files(layout: Layout, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _contents(folder)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        replace_files(layout, {"a": b"new a"}, ["b"])
    assert _contents(folder) == before


def test_kill_before_the_decision_is_undone(layout: Layout, folder: Path) -> None:
    before = _contents(folder)
    (folder / ".replacing.partial").mkdir()
    (folder / ".replacing.partial" / "a").write_bytes(b"half")
    recover(layout)
    assert _contents(folder) == before


@pytest.mark.parametrize("done", ["nothing", "first file", "all files", "removal", "list gone"])
def test_kill_after_the_decision_is_finished(layout: Layout, folder: Path, done: str) -> None:
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
    recover(layout)
    assert not replacement_pending(folder)
    assert _contents(folder) == {"a": b"new a", "c": b"kept", "d": b"new d"}


@pytest.mark.parametrize("listed", [b"", b"{}", b'["../a"]', b'["/etc/passwd"]', b"[1]", b"\xff"])
def test_forged_list_of_removals_is_refused(layout: Layout, folder: Path, listed: bytes) -> None:
    (folder / ".replacing").mkdir()
    (folder / ".replacing" / "removals.json").write_bytes(listed)
    with pytest.raises(IntegrityError) as caught:
        recover(layout)
    assert "removals.json" in str(caught.value.where)


def test_manifest_goes_with_the_patches(layout: Layout, folder: Path) -> None:
    replace_files(layout, {"a": b"new a"}, ["b"], manifest=b"new pin")
    assert _contents(folder) == {"a": b"new a", "c": b"kept"}
    assert _contents(layout.upstream_manifest.parent) == {"llama.cpp.toml": b"new pin"}


def test_manifest_that_cannot_be_written_is_noticed_before_the_decision(layout: Layout, folder: Path) -> None:
    before = _contents(folder)
    layout.upstream_manifest.unlink()
    layout.upstream_manifest.parent.rmdir()
    with pytest.raises(FileNotFoundError):
        replace_files(layout, {"a": b"new a"}, ["b"], manifest=b"new pin")
    assert _contents(folder) == before


@pytest.mark.parametrize("done", [False, True])
def test_kill_before_or_after_the_manifest_is_finished(layout: Layout, folder: Path, done: bool) -> None:
    (folder / ".replacing").mkdir()
    (folder / ".replacing" / "upstream-manifest.toml").write_bytes(b"new pin")
    (folder / ".replacing" / "removals.json").write_bytes(b"[]")
    if done:
        layout.upstream_manifest.write_bytes(b"new pin")
    recover(layout)
    assert layout.upstream_manifest.read_bytes() == b"new pin"
    assert _contents(folder) == {"a": b"old a", "b": b"old b", "c": b"kept"}
