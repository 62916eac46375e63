"""Folders of runs: the newest are kept, and those that somebody still uses."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from dgrctl.errors import StorageError
from dgrctl.layout import Layout
from dgrctl.runtime.runlog import KEPT_RUNS, run_folder, tail


def test_the_newest_are_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = []
    for _ in range(KEPT_RUNS + 5):
        with run_folder(layout) as folder:
            made.append(folder)
    assert sorted(layout.runs.iterdir()) == sorted(made[-KEPT_RUNS:])


def test_a_run_under_way_is_never_removed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with contextlib.ExitStack() as stack:
        oldest = stack.enter_context(run_folder(layout))
        for _ in range(KEPT_RUNS + 5):
            with run_folder(layout):
                pass
        assert oldest.is_dir()
    with run_folder(layout):
        pass
    assert not oldest.exists()


def test_strangers_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.runs.mkdir(parents=True)
    (layout.runs / "00-notes.txt").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (layout.runs / "00-link").symlink_to(elsewhere)
    for _ in range(KEPT_RUNS + 2):
        with run_folder(layout):
            pass
    assert (layout.runs / "00-notes.txt").exists()
    assert (layout.runs / "00-link").is_symlink()


def test_a_place_that_is_no_folder_is_reported(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "full")
    layout.root.mkdir()
    layout.state.symlink_to("/sys")
    with pytest.raises(StorageError), run_folder(layout):
        pass


def test_tail_shows_the_last_lines_of_any_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(None) is None
    assert tail(log) is None
    log.write_bytes(b"")
    assert tail(log) is None
    log.write_bytes(b"\xff broken\n" * 5000 + b"last line")
    shown = tail(log)
    assert shown is not None
    assert shown.splitlines()[-1] == "last line"
    assert len(shown.splitlines()) == 12
