"""The toolchain search: against small programs that answer, answer wrongly, are too old, or are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dgrctl.errors import ToolchainError
from dgrctl.lanes.toolchain import BUILD, CHECKS, Requirement, find_toolchain, look_for

NINJA = Requirement("ninja", "ninja-build", "running builds", (1, 10))
COMPILER = Requirement("c++", "g++", "compiling", override="CXX")
LIBRARY = Requirement("grpc++", "libgrpc++-dev", "transport", (1, 51), library=True)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own; programs are written into it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def _program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_found_with_path_and_version(programs: Path) -> None:
    _program(programs, "ninja", "echo 1.11.1")
    _program(programs, "pkg-config", 'test "$*" = "--modversion grpc++" && echo 1.51.1')
    tools = find_toolchain((NINJA, LIBRARY))
    assert tools.program("ninja") == programs / "ninja"
    assert tools.versions() == {"grpc++": "1.51.1", "ninja": "1.11.1"}
    with pytest.raises(LookupError):
        tools.program("grpc++")


def test_everything_missing_is_named_at_once_with_its_package(programs: Path) -> None:
    assert not list(programs.iterdir())
    with pytest.raises(ToolchainError) as refused:
        find_toolchain((NINJA, COMPILER, LIBRARY))
    assert refused.value.remedy == "make deps, or: apt-get install g++ libgrpc++-dev ninja-build"
    assert "ninja: it is not on PATH; needed for running builds" in str(refused.value.detail)
    assert "grpc++: pkg-config cannot be run" in str(refused.value.detail)


def test_too_old(programs: Path) -> None:
    _program(programs, "ninja", "echo 1.9.0.git")
    with pytest.raises(ToolchainError) as refused:
        find_toolchain((NINJA,))
    assert "1.9.0.git is too old, 1.10 or newer is needed" in str(refused.value.detail)


def test_versions_are_compared_as_numbers(programs: Path) -> None:
    _program(programs, "ninja", "echo 1.100")
    assert find_toolchain((NINJA,)).versions() == {"ninja": "1.100"}


@pytest.mark.parametrize(
    ("script", "told"), [("exit 3", "exit code 3"), ("echo broken >&2; exit 1", "broken"), ("kill -9 $$", "exit code -9")]
)
def test_a_program_that_fails_is_not_found(programs: Path, script: str, told: str) -> None:
    _program(programs, "ninja", script)
    _, problems = look_for((NINJA,))
    assert told in problems[NINJA]


@pytest.mark.parametrize("answer", ["", "no number here", "\\377\\376"])
def test_an_answer_without_a_version_is_too_old(programs: Path, answer: str) -> None:
    _program(programs, "ninja", f"printf '{answer}'")
    _, problems = look_for((NINJA,))
    assert "is too old" in problems[NINJA]


def test_a_program_that_cannot_be_run(programs: Path) -> None:
    (programs / "ninja").write_bytes(b"\x7fELF not quite")
    (programs / "ninja").chmod(0o755)
    _, problems = look_for((NINJA,))
    assert "cannot be run" in problems[NINJA]


def test_the_environment_names_another_compiler(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(programs, "clang++", "echo clang version 19.1.7")
    monkeypatch.setenv("CXX", "clang++")
    assert find_toolchain((COMPILER,)).program("c++") == programs / "clang++"
    monkeypatch.setenv("CXX", "/nowhere/g++")
    _, problems = look_for((COMPILER,))
    assert problems[COMPILER] == "CXX=/nowhere/g++ is not on PATH; needed for compiling"


def _compiler(folder: Path, name: str, version: str, family: str = "") -> None:
    _program(
        folder, name, f"""case "$*" in *-dM*) echo '#define __VERSION__ "{version}"'; {family} ;; *) echo {version};; esac"""
    )


@pytest.mark.parametrize(
    ("version", "family", "told"),
    [("11.4.0", ":", "is GCC 11.4.0"), ("Clang 14.0.6", "echo '#define __clang__ 1'", "is Clang 14.0.6")],
)
def test_two_compilers_are_refused_and_both_named(programs: Path, version: str, family: str, told: str) -> None:
    _compiler(programs, "cc", version, family)
    _compiler(programs, "c++", "12.2.0", ":")
    with pytest.raises(ToolchainError, match="two different compilers") as refused:
        find_toolchain([requirement for requirement in BUILD if requirement.override])
    assert f"CC={programs}/cc {told}" in refused.value.what
    assert f"CXX={programs}/c++ is GCC 12.2.0" in refused.value.what


@pytest.mark.parametrize("version", ["3.21.12", "25.1"])
def test_protoc_of_another_version_than_the_library_is_refused(programs: Path, version: str) -> None:
    _program(programs, "protoc", f"echo libprotoc {version}")
    _program(programs, "pkg-config", 'case "$1" in --modversion) echo 3.22.1;; *) echo /opt/lib/pkgconfig;; esac')
    with pytest.raises(ToolchainError, match="two versions") as refused:
        find_toolchain([requirement for requirement in BUILD if requirement.name.startswith("proto")])
    assert f"{programs}/protoc is libprotoc {version}" in refused.value.what
    assert "/opt/lib/pkgconfig/protobuf.pc is 3.22.1" in refused.value.what


def test_protoc_names_its_version_shorter_than_the_library(programs: Path) -> None:
    _program(programs, "protoc", "echo libprotoc 25.1")
    _program(programs, "pkg-config", "echo 25.1.0")
    find_toolchain([requirement for requirement in BUILD if requirement.name.startswith("proto")])


def test_packages_are_printed_for_the_makefile_without_any_python_package(programs: Path) -> None:
    # -S -I: no site-packages; as on a machine where nothing was installed yet.
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-S", "-I", "-c", f"import sys; sys.path.insert(0, {str(root)!r}); "
               "from dgrctl.lanes.toolchain import main; sys.exit(main())"]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, PATH=str(programs)))
    assert answer.stdout.split() == sorted({requirement.package for requirement in (*BUILD, *CHECKS)})
    assert "c++: it is not on PATH" in answer.stderr
