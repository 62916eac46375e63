"""Configuring with CMake, and reading back what it really chose.

What CMake chose is read from its file API (cmake-file-api(7), objects "cache" version 2, "cmakeFiles" version 1
and "toolchains" version 1) and from the compile_commands.json that it writes beside the build file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgrctl.errors import BuildError
from dgrctl.files import storage_errors, write_atomic
from dgrctl.lanes.tool import Tool

_API = Path(".cmake/api/v1")
_CLIENT = "client-dgrctl"
_LAST_LINES = 24


@dataclass(frozen=True)
class Compiler:
    """A compiler as CMake identified it: id "GNU" or "Clang", its own version number."""

    path: str
    id: str
    version: str


@dataclass(frozen=True)
class Outcome:
    """What a configured build folder will really build.

    Attributes:
        options: Cache entries of CMake by name, all of them.
        compilers: By CMake's language name: "C", "CXX".
        commands: One compiler command line per source file, split into words, by the file's path as compiled.
    """

    options: Mapping[str, str]
    compilers: Mapping[str, Compiler]
    commands: Mapping[str, Sequence[str]]


def configure(cmake: Path, source: Path, folder: Path, definitions: Mapping[str, str], *, tool: Tool) -> None:
    """Configures ``folder`` for Ninja with ``definitions`` as cache entries.

    Raises:
        BuildError: CMake failed; with the last lines of its output.
        StorageError: the disk is full.
    """
    _ask(folder)
    lines: list[str] = []
    settings = [f"-D{name}={value}" for name, value in definitions.items()]
    code = tool.run([str(cmake), "-S", str(source), "-B", str(folder), "-G", "Ninja", *settings], lines.append)
    if code != 0:
        tool.refuse_full_disk(lines)
        raise BuildError(
            f"CMake could not configure the build (exit code {code})",
            where=str(tool.log),
            detail="\n".join(lines[-_LAST_LINES:]),
            remedy="correct what it names and run the same command again",
        )


def _ask(folder: Path) -> None:
    """Leaves the question that CMake answers whenever it generates."""
    requests = [{"kind": "cache", "version": 2}, {"kind": "cmakeFiles", "version": 1}, {"kind": "toolchains", "version": 1}]
    query = folder / _API / "query" / _CLIENT / "query.json"
    with storage_errors(query):
        query.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(query, json.dumps({"requests": requests}).encode())


def read_outcome(folder: Path) -> Outcome:
    """Reads CMake's answers in a configured ``folder``.

    Raises:
        BuildError: they are missing or are not what the file API promises.
    """
    try:
        answers = _answers(folder)
        options = {entry["name"]: entry["value"] for entry in answers["cache"]["entries"]}
        # Upstream also enables ASM, whose compiler CMake leaves unidentified.
        toolchains = {entry["language"]: entry["compiler"] for entry in answers["toolchains"]["toolchains"]}
        compilers = {language: _compiler(toolchains[language]) for language in ("C", "CXX")}
        database = json.loads((folder / "compile_commands.json").read_bytes())
        commands = {entry["file"]: shlex.split(entry["command"]) for entry in database}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError(
            f"CMake's account of the build cannot be read: {error!r}",
            where=str(folder / _API / "reply"),
            remedy="dgrctl build --force makes the build folder anew",
        ) from error
    return Outcome(options, compilers, commands)


def configured_from(folder: Path, source: Path) -> list[Path]:
    """Every file that CMake read to configure ``folder``; relative ones are below ``source``. Empty if it does not say."""
    try:
        inputs = _answers(folder)["cmakeFiles"]["inputs"]
        return [source / entry["path"] for entry in inputs if not entry.get("isGenerated")]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _answers(folder: Path) -> dict[str, Any]:
    """CMake's last answers, by kind. Raises what reading a file that is not there or not well-formed raises."""
    reply = folder / _API / "reply"
    # The newest index is the last by name (cmake-file-api(7), "v1 Reply Index File").
    index = json.loads(max(reply.glob("index-*.json")).read_bytes())
    return {
        answer["kind"]: json.loads((reply / answer["jsonFile"]).read_bytes())
        for answer in index["reply"][_CLIENT]["query.json"]["responses"]
    }


def _compiler(entry: Mapping[str, str]) -> Compiler:
    return Compiler(entry["path"], entry["id"], entry["version"])


def common_words(commands: Iterable[Sequence[str]]) -> frozenset[str]:
    """The words that all of ``commands`` have; empty for none."""
    words = [frozenset(command) for command in commands]
    return frozenset.intersection(*words) if words else frozenset()
