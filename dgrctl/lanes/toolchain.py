"""The programs and libraries that a build needs: where they are, which version, and which Debian package brings what is missing.

``python3 -m dgrctl.lanes.toolchain`` prints the packages of what is missing here, one a line, and explains each on stderr. The
Makefile runs it before any Python package is installed, so this module imports nothing but the standard library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dgrctl.errors import ToolchainError
from dgrctl.lanes.compilers import compiler_version, find_compiler
from dgrctl.offspring import marked


@dataclass(frozen=True)
class Requirement:
    """A program on PATH or, with ``library``, a module that pkg-config knows; ``package`` is Debian's (12 and 13)."""

    name: str
    package: str
    purpose: str
    minimum: tuple[int, ...] = ()
    library: bool = False
    # What the program is asked for its version with.
    version_option: str = "--version"
    # The environment variable that may name another compiler, as for make and CMake.
    override: str | None = None


BUILD = (
    Requirement("git", "git", "fetching llama.cpp and applying the patch stack", (2, 30)),
    Requirement("cc", "gcc", "compiling C", override="CC"),
    Requirement("c++", "g++", "compiling C++20", override="CXX"),
    Requirement("cmake", "cmake", "configuring builds", (3, 25)),
    Requirement("ninja", "ninja-build", "running builds", (1, 10)),
    Requirement("ccache", "ccache", "compiling only once what worker and reference have in common", (4, 0)),
    Requirement("pkg-config", "pkg-config", "finding the libraries"),
    Requirement("protoc", "protobuf-compiler", "generating the wire contract"),
    Requirement("grpc_cpp_plugin", "protobuf-compiler-grpc", "generating the services", version_option=""),
    Requirement("grpc++", "libgrpc++-dev", "the worker's transport", (1, 51), library=True),
    Requirement("protobuf", "libprotobuf-dev", "the wire contract", (3, 21), library=True),
    Requirement("libcares", "libc-ares-dev", "gRPC, which is linked in", library=True),
    Requirement("re2", "libre2-dev", "gRPC, which is linked in", library=True),
    Requirement("absl_status", "libabsl-dev", "statuses, spans and options", library=True),
    Requirement("zlib", "zlib1g-dev", "checksums of frames", library=True),
    Requirement("gtest", "libgtest-dev", "the worker's unit tests", library=True),
)

# Needed by `make test` and by whoever checks a signature without dgrctl, but by no build.
CHECKS = (Requirement("openssl", "openssl", "verifying a signature without dgrctl", version_option="version"),)


@dataclass(frozen=True)
class Found:
    """A requirement as it stands on this machine; ``path`` is None for a library."""

    requirement: Requirement
    version: str
    path: Path | None = None


@dataclass(frozen=True)
class Toolchain:
    """All that a build needs, by the requirement's name."""

    found: Mapping[str, Found] = field(default_factory=dict)

    def program(self, name: str) -> Path:
        """Where a program is."""
        path = self.found[name].path
        if path is None:
            raise LookupError(f"{name} is a library")
        return path

    def versions(self) -> dict[str, str]:
        """Every version, by name: part of what can change a build."""
        return {name: found.version for name, found in sorted(self.found.items())}


def find_toolchain(requirements: Iterable[Requirement] = BUILD) -> Toolchain:
    """Finds all of ``requirements``.

    Raises:
        ToolchainError: some are missing or too old (it names each and the command that brings it), or two do not fit together.
    """
    found, problems = look_for(requirements)
    if problems:
        packages = sorted({requirement.package for requirement in problems})
        raise ToolchainError(
            f"this build needs what is not here: {', '.join(requirement.name for requirement in problems)}",
            where="PATH and pkg-config",
            detail="\n".join(f"{requirement.name}: {why}" for requirement, why in problems.items()),
            remedy=f"make deps, or: apt-get install {' '.join(packages)}",
        )
    _refuse_two_compilers(found)
    _refuse_foreign_protoc(found)
    return Toolchain(found)


def look_for(requirements: Iterable[Requirement]) -> tuple[dict[str, Found], dict[Requirement, str]]:
    """What is here, by name, and what is not, with the reason."""
    found: dict[str, Found] = {}
    problems: dict[Requirement, str] = {}
    for requirement in requirements:
        try:
            here = _library(requirement) if requirement.library else _program(requirement)
        except LookupError as error:
            problems[requirement] = str(error)
            continue
        if _numbers(here.version) < requirement.minimum:
            wanted = ".".join(map(str, requirement.minimum))
            problems[requirement] = f"{here.version} is too old, {wanted} or newer is needed for {requirement.purpose}"
            continue
        found[requirement.name] = here
    return found, problems


def _program(requirement: Requirement) -> Found:
    path = _on_path(requirement) if requirement.override is None else _compiler(requirement, requirement.override)
    version = _ask([str(path), requirement.version_option]) if requirement.version_option else ""
    return Found(requirement, version.partition("\n")[0].strip(), path)


def _on_path(requirement: Requirement) -> Path:
    path = shutil.which(requirement.name)
    if path is None:
        raise LookupError(f"it is not on PATH; needed for {requirement.purpose}")
    return Path(path)


def _compiler(requirement: Requirement, variable: str) -> Path:
    setting = os.environ.get(variable) or requirement.name
    try:
        return find_compiler(setting)
    except LookupError as error:
        named = "it" if setting == requirement.name else f"{variable}={setting}"
        raise LookupError(f"{named} {error}; needed for {requirement.purpose}") from error


def _library(requirement: Requirement) -> Found:
    version = _ask(["pkg-config", "--modversion", requirement.name])
    return Found(requirement, version.strip())


def _refuse_two_compilers(found: Mapping[str, Found]) -> None:
    """One build has one compiler for C and C++: their flags and code generation must agree."""
    if not {"cc", "c++"} <= found.keys():
        return
    compilers = {"CC": found["cc"].path, "CXX": found["c++"].path}
    try:
        versions = {variable: compiler_version(path) for variable, path in compilers.items() if path is not None}
    except LookupError as error:
        raise ToolchainError(
            str(error), where="CC and CXX", remedy="set CC and CXX to gcc and g++, or to clang and clang++"
        ) from error
    if len(set(versions.values())) > 1:
        raise ToolchainError(
            "CC and CXX are two different compilers: "
            + ", ".join(f"{variable}={compilers[variable]} is {version}" for variable, version in versions.items()),
            where="CC and CXX",
            remedy="set CC and CXX to the C and the C++ compiler of one family and version, such as CC=gcc-12 CXX=g++-12",
        )


def _refuse_foreign_protoc(found: Mapping[str, Found]) -> None:
    """Code that one version of protoc generates does not compile with the headers of another."""
    if not {"protoc", "protobuf"} <= found.keys():
        return
    program, library = found["protoc"], found["protobuf"]
    pairs = zip(_numbers(program.version), _numbers(library.version), strict=False)
    if any(mine != other for mine, other in pairs):
        folder = _ask(["pkg-config", "--variable=pcfiledir", "protobuf"]).strip()
        raise ToolchainError(
            f"protoc and libprotobuf are of two versions: {program.path} is {program.version}, "
            f"{folder}/protobuf.pc is {library.version}",
            where="PATH and pkg-config",
            remedy="put the protoc of that library first in PATH, or set PKG_CONFIG_PATH to the library of that protoc",
        )


def _ask(command: list[str]) -> str:
    # Answers in English; and of a library's own version alone, since walking through all that gRPC needs takes seconds
    # (pkgconf(1), ENVIRONMENT).
    environment = {"LC_ALL": "C", "PKG_CONFIG_MAXIMUM_TRAVERSE_DEPTH": "1"}
    try:
        answer = subprocess.run(command, capture_output=True, check=True, env=marked(os.environ | environment))
    except OSError as error:
        raise LookupError(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise LookupError(f"{' '.join(command)} failed: {told or f'exit code {error.returncode}'}") from error
    return answer.stdout.decode("utf-8", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    """The first dotted number in a program's answer, comparable; empty if there is none."""
    found = re.search(r"\d+(?:\.\d+)+|\d+", version)
    return tuple(int(part) for part in found.group(0).split(".")) if found else ()


def main() -> int:
    """Prints the packages of what is missing."""
    _, problems = look_for((*BUILD, *CHECKS))
    for requirement, why in problems.items():
        print(f"{requirement.name}: {why}", file=sys.stderr)
    for package in sorted({requirement.package for requirement in problems}):
        print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
