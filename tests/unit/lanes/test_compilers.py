"""CC and CXX: ccache in front of a compiler is seen through, and options are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgrctl.lanes.compilers import compiler_version, find_compiler


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A PATH of two folders: links to ccache that are named like compilers, as in /usr/lib/ccache, and the compilers."""
    masquerade, real = tmp_path / "masquerade", tmp_path / "bin"
    for folder in (masquerade, real):
        folder.mkdir()
    for name in ("ccache", "gcc"):
        (real / name).write_text("#!/bin/sh\n")
        (real / name).chmod(0o755)
    for name in ("gcc", "clang"):
        (masquerade / name).symlink_to(real / "ccache")
    monkeypatch.setenv("PATH", f"{masquerade}:{real}")
    return masquerade, real


def test_the_compiler_behind_ccache(folders: tuple[Path, Path]) -> None:
    masquerade, real = folders
    for setting in ("gcc", "ccache gcc", f"{real}/ccache gcc", f"{masquerade}/gcc", f"ccache {real}/gcc"):
        assert find_compiler(setting) == real / "gcc", setting


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("gcc -m32", "names a compiler with options"),
        ("ccache gcc -m32", "names a compiler with options"),
        ("gcc '", "has a quotation mark"),
        ("icc", "is not on PATH"),
        ("clang", "PATH has no compiler clang behind it"),
    ],
)
def test_what_names_no_compiler(folders: tuple[Path, Path], setting: str, told: str) -> None:
    with pytest.raises(LookupError, match=told):
        find_compiler(setting)


def test_a_program_that_is_no_compiler(folders: tuple[Path, Path]) -> None:
    with pytest.raises(LookupError, match="GCC or Clang is needed"):
        compiler_version(folders[1] / "gcc")
