"""Files that are dated in the future: sources get the present time, and another input of CMake is named."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from dgrctl.errors import BuildError
from dgrctl.lanes.cmake import configure
from dgrctl.lanes.source_times import refuse_newer_inputs, remove_future_times
from dgrctl.lanes.tool import Tool

FUTURE = time.time() + 365 * 24 * 3600


def test_only_what_is_dated_in_the_future_gets_another_time(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for path, moment in ((old, 1000), (new, FUTURE)):
        path.write_text("text")
        os.utime(path, (moment, moment))
    remove_future_times([tmp_path])
    assert old.stat().st_mtime == 1000
    assert new.stat().st_mtime < FUTURE


def test_another_input_of_cmake_is_named(tmp_path: Path) -> None:
    """A project without a language: CMake runs no compiler."""
    source, folder, module = tmp_path / "source", tmp_path / "build", tmp_path / "module.cmake"
    source.mkdir()
    folder.mkdir()
    module.write_text("")
    text = f'cmake_minimum_required(VERSION 3.25)\nproject(none LANGUAGES NONE)\ninclude("{module}")\n'
    (source / "CMakeLists.txt").write_text(text)
    tool = Tool(tmp_path / "log", {"PATH": os.environ["PATH"]}, ())
    configure(Path(shutil.which("cmake") or "cmake"), source, folder, {}, tool=tool)
    refuse_newer_inputs(folder, source)
    os.utime(module, (FUTURE, FUTURE))
    with pytest.raises(BuildError, match="dated in the future") as refused:
        refuse_newer_inputs(folder, source)
    assert refused.value.where == str(module)
    os.utime(module)
    os.utime(source / "CMakeLists.txt", (FUTURE, FUTURE))
    with pytest.raises(BuildError) as refused:
        refuse_newer_inputs(folder, source)
    assert refused.value.where == str(source / "CMakeLists.txt")
