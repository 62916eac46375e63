"""What is to be built, and the digests that tell whether it was built already.

A build folder is chosen by its *configuration*: everything that can change the output but our own sources, which Ninja follows.
The *inputs* are both. Neither depends on where the checkout lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dgrctl.canonical import canonical_sha256
from dgrctl.errors import StorageError
from dgrctl.files import sha256_file
from dgrctl.lanes import cpu
from dgrctl.lanes.isa import IsaLevel
from dgrctl.lanes.record import REFERENCE, WORKER
from dgrctl.lanes.toolchain import Toolchain
from dgrctl.layout import Layout

ROLES = ("reference", "worker")
PROGRAMS = {"reference": REFERENCE, "worker": WORKER}
NO_STACK = "none"

# Their versions can change a binary; those of git, ninja and ccache cannot.
_SHAPING_TOOLS = ("c++", "cc", "cmake", "protoc", "absl_status", "grpc++", "libcares", "protobuf", "re2", "zlib")

# Of llama.cpp only the library is built. Without git neither tree states a commit of its own in the code they share: what was
# built from what is stated by dgrctl, and the compiler's cache serves both trees.
_LIBRARY_ONLY = {
    "CMAKE_BUILD_TYPE": "Release",
    # CMake from 3.28 on would look for C++ modules in each file, and for that give up upstream's unity build.
    "CMAKE_CXX_SCAN_FOR_MODULES": "OFF",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_BACKEND_DL": "OFF",
    "GGML_CCACHE": "OFF",
    "GGML_LTO": "OFF",
    "GGML_RPC": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_COMMON": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_MTMD": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
    "LLAMA_BUILD_COMMIT": "unknown",
    "LLAMA_BUILD_NUMBER": "0",
    "GIT_EXE": "",
}


@dataclass(frozen=True)
class Sources:
    """What the programs of a lane are built from. ``own`` is the digest of ``worker/`` and ``proto/``."""

    pin: str
    upstream_tree: str
    patched_tree: str
    stack_digest: str
    own: str


@dataclass(frozen=True)
class Plan:
    """One program to be built.

    Attributes:
        source: The llama.cpp tree that it is linked to.
        options: CMake's cache entries that are its identity.
        configuration: Digest that chooses the folder.
        inputs: Digest of all that it is built from.
    """

    role: str
    program: str
    source: Path
    options: Mapping[str, str]
    folder: Path
    configuration: str
    inputs: str


def plan(layout: Layout, role: str, *, lane: str, isa: IsaLevel, sources: Sources, tools: Toolchain) -> Plan:
    """Plans ``role`` of the CPU lane."""
    patched = role == "worker"
    options = {
        **_LIBRARY_ONLY,
        **cpu.cmake_options(isa),
        "DGR_ROLE": role,
        "DGR_PIN": sources.pin,
        "DGR_STACK": sources.stack_digest if patched else NO_STACK,
        "DGR_LANE": lane,
        "DGR_ISA": isa.name,
        "DGR_TESTS": "ON" if patched else "OFF",
    }
    versions = tools.versions()
    configuration = canonical_sha256(
        {
            "options": options,
            "tree": sources.patched_tree if patched else sources.upstream_tree,
            "tools": {name: versions[name] for name in _SHAPING_TOOLS},
            "compilers": {name: str(tools.program(name)) for name in ("cc", "c++")},
            "layout": 1,  # to be raised when build.py lays folders out otherwise
        }
    )
    return Plan(
        role=role,
        program=PROGRAMS[role],
        source=layout.workspace if patched else layout.pristine,
        options=options,
        folder=layout.builds / "folders" / f"{lane}-{role}-{isa.name}-{configuration[:12]}",
        configuration=configuration,
        inputs=canonical_sha256({"configuration": configuration, "sources": sources.own}),
    )


def own_sources_digest(layout: Layout) -> str:
    """SHA-256 over names and contents of every file in ``worker/`` and ``proto/``.

    Raises:
        StorageError: one cannot be read.
    """
    digest = hashlib.sha256()
    for folder in (layout.root / "worker", layout.root / "proto"):
        for path in sorted(folder.rglob("*")):
            if path.is_dir():
                continue
            try:
                digest.update(f"{path.relative_to(layout.root).as_posix()}\0{sha256_file(path)}\n".encode())
            except OSError as error:
                raise StorageError(
                    f"this source file cannot be read: {error.strerror}", where=str(path), remedy="restore it: git status"
                ) from error
    return digest.hexdigest()
