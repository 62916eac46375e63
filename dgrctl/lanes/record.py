"""The build record: what a lane's programs were built from, with what, and the SHA-256 of each.

Identity is in every field but the times and paths. The file lies at ``.dgr/build/records/<lane>.json``; paths in it are relative
to the checkout, and absolute once loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgrctl.documents import digested_json
from dgrctl.errors import BuildError, InputError
from dgrctl.files import write_atomic
from dgrctl.layout import Layout

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
ObjectId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?\Z")]

WORKER = "dgr-worker"
REFERENCE = "dgr-reference"


class CompilerRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A compiler as CMake identified it."""

    path: str
    id: str
    version: str


class Trees(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Git trees: untouched upstream, and upstream with the patch stack."""

    upstream: ObjectId
    patched: ObjectId


class Binary(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One program.

    Attributes:
        folder: Its build folder.
        configuration: Digest of everything that chose the folder: role, lane, ISA, options, tool versions, tree.
        inputs: Digest of that and of our own sources: equal inputs need no second build.
        sources: Digest of ``worker/`` and ``proto/`` alone.
        options: ggml's, llama.cpp's and our own CMake options, as CMake's cache holds them.
        flags: What every file of ggml's CPU backend was compiled with, without paths.
        compilers: By CMake's language name.
    """

    path: str
    sha256: Sha256
    folder: str
    configuration: Sha256
    inputs: Sha256
    sources: Sha256
    options: dict[str, str]
    flags: list[str]
    compilers: dict[str, CompilerRecord]
    built_at: str
    build_seconds: Annotated[int, msgspec.Meta(ge=0)]


class BuildRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A lane as built. ``tools`` are versions by name; ``binaries`` by program name."""

    schema: Literal[1]
    lane: str
    isa: str
    pin: ObjectId
    stack_digest: str
    trees: Trees
    tools: dict[str, str]
    binaries: dict[str, Binary]

    @property
    def worker(self) -> Path:
        """The program built from the patched tree.

        Raises:
            BuildError: it was not built.
        """
        return self._program(WORKER)

    @property
    def reference(self) -> Path:
        """The program built from the untouched tree.

        Raises:
            BuildError: it was not built.
        """
        return self._program(REFERENCE)

    def _program(self, name: str) -> Path:
        if name not in self.binaries:
            raise BuildError(f"{name} was not built", where=self.lane, remedy=f"dgrctl build --lane {self.lane}")
        return Path(self.binaries[name].path)


def record_path(layout: Layout, lane: str) -> Path:
    """Where the record of ``lane`` lies."""
    return layout.builds / "records" / f"{lane}.json"


def load_record(layout: Layout, lane: str) -> BuildRecord | None:
    """The record of ``lane`` with absolute paths; None if nothing was built.

    Raises:
        InputError: the file is not a record, or not of this lane.
    """
    found = digested_record(layout, lane)
    return None if found is None else found[0]


def digested_record(layout: Layout, lane: str) -> tuple[BuildRecord, str] | None:
    """Like :func:`load_record`, with the SHA-256 of the very bytes that were parsed."""
    path = record_path(layout, lane)
    if not path.exists():
        return None
    remedy = f"dgrctl build --lane {lane} --force"
    try:
        record, sha256 = digested_json(path, BuildRecord, what="build record")
    except InputError as error:
        raise InputError(error.what, where=error.where, remedy=remedy) from error
    if record.lane != lane:
        raise InputError(f"this build record is of the lane {record.lane}", where=f"{path}: lane", remedy=remedy)
    return _with_paths(record, lambda text: str(layout.root / text)), sha256


def save_record(layout: Layout, record: BuildRecord) -> None:
    """Replaces the record of its lane.

    Raises:
        StorageError: it cannot be written; the old one stands.
    """
    relative = _with_paths(record, lambda text: str(Path(text).relative_to(layout.root)))
    write_atomic(record_path(layout, record.lane), msgspec.json.format(msgspec.json.encode(relative), indent=2) + b"\n")


def _with_paths(record: BuildRecord, change: Callable[[str], str]) -> BuildRecord:
    binaries = {
        name: msgspec.structs.replace(binary, path=change(binary.path), folder=change(binary.folder))
        for name, binary in record.binaries.items()
    }
    return msgspec.structs.replace(record, binaries=binaries)
