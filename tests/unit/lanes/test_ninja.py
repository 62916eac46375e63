"""Ninja's output: what failed is told with its command; a full disk is told as one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgrctl.errors import BuildError, StorageError
from dgrctl.lanes.ninja import default_jobs, run_ninja
from dgrctl.lanes.tool import Tool, build_environment


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path / "build.log", {"PATH": os.environ["PATH"]}, ())


def _ninja(folder: Path, script: str) -> Path:
    """A program that prints what Ninja printed once."""
    path = folder / "ninja"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


FAILED = """cat <<'END'
[1/76] Building C object a.o
[2/76] Building CXX object llama/b.o
FAILED: llama/b.o 
/usr/bin/ccache /usr/bin/c++ -O3 -o llama/b.o -c b.cpp
b.cpp:3:1: error: 'nonsense' does not name a type
    3 | nonsense
[3/76] Building CXX object c.o
ninja: build stopped: subcommand failed.
END
exit 1"""  # noqa: W291 - Ninja ends that line with a space


def test_the_failing_command_and_what_it_said(tool: Tool, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"building llama/b\.o failed") as failed:
        run_ninja(_ninja(tmp_path, FAILED), tmp_path, ["all"], tool=tool, title="Building")
    assert str(failed.value.detail).splitlines() == [
        "/usr/bin/ccache /usr/bin/c++ -O3 -o llama/b.o -c b.cpp",
        "b.cpp:3:1: error: 'nonsense' does not name a type",
        "    3 | nonsense",
    ]
    assert failed.value.where == str(tool.log)
    assert "[3/76] Building CXX object c.o\n" in tool.log.read_text()


def test_only_the_last_lines_of_a_long_complaint(tool: Tool, tmp_path: Path) -> None:
    script = "echo 'FAILED: x'; echo cc; seq 1 1000; exit 1"
    with pytest.raises(BuildError) as failed:
        run_ninja(_ninja(tmp_path, script), tmp_path, ["all"], tool=tool, title="Building")
    lines = str(failed.value.detail).splitlines()
    assert lines[0] == "cc"
    assert lines[-1] == "1000"
    assert len(lines) < 30


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo ninja: error: unknown target; exit 1", "failed with exit code 1"),
        ("exit 127", "failed with exit code 127"),
        ("kill -9 $$", "was ended by signal 9"),
        ("printf 'FAILED: last line'; exit 1", "building last line failed"),
    ],
)
def test_other_failures(tool: Tool, tmp_path: Path, script: str, told: str) -> None:
    with pytest.raises(BuildError, match=told):
        run_ninja(_ninja(tmp_path, script), tmp_path, ["all"], tool=tool, title="Building")


def test_a_compiler_killed_for_memory_says_how_to_go_on(tool: Tool, tmp_path: Path) -> None:
    script = "echo 'FAILED: x'; echo c++; echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1"
    with pytest.raises(BuildError) as failed:
        run_ninja(_ninja(tmp_path, script), tmp_path, ["all"], tool=tool, title="Building")
    assert "--jobs 1" in str(failed.value.remedy)


@pytest.mark.parametrize("sign", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk(tool: Tool, tmp_path: Path, sign: str) -> None:
    script = f"echo 'FAILED: x'; echo c++; echo '/tmp/cc.s: fatal error: error writing: {sign}'; exit 1"
    with pytest.raises(StorageError, match="the disk is full") as failed:
        run_ninja(_ninja(tmp_path, script), tmp_path, ["all"], tool=tool, title="Building")
    assert sign in str(failed.value.detail)


def test_output_that_is_no_text_does_no_harm(tool: Tool, tmp_path: Path) -> None:
    run_ninja(_ninja(tmp_path, r"printf '\377\376[1/2] \n[99999999999/0] x\n'"), tmp_path, ["all"], tool=tool, title="Building")
    assert "[1/2]" in tool.log.read_text(encoding="utf-8")


def test_at_least_one_job_and_no_more_than_processors() -> None:
    assert 1 <= default_jobs() <= (os.cpu_count() or 1)


def test_the_environment_of_a_build_holds_nothing_that_bends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "CC", "CMAKE_GENERATOR", "CCACHE_DISABLE", "NINJAFLAGS", "LANG"):
        monkeypatch.setenv(name, "bent")
    environment = build_environment(tmp_path)
    assert "bent" not in environment.values()
    assert environment["CCACHE_DIR"] == str(tmp_path)
    assert environment["PATH"] == os.environ["PATH"]
