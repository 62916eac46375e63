"""The predicate ``patch-stack/v1``: what the workspace was proven to hold, signed; a material for build provenance.

Subjects are ``series.lock`` and every patch file. The record says only what follows from them and from hashing the workspace, so
two machines that record the same stack sign the same statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dgrctl.errors import EvidenceError
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.fields import CommitHex, Count, Record, Sha256Hex, Text
from dgrctl.evidence.keys import SigningKey
from dgrctl.evidence.parsing import convert
from dgrctl.evidence.statement import Subject, statement_bytes
from dgrctl.evidence.trust import local_trust
from dgrctl.evidence.verify import Signed, open_signed, read_evidence
from dgrctl.files import sha256_file, write_atomic
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
from dgrctl.upstream.series import LOCK_NAME, load_lock, stack_digest
from dgrctl.upstream.stack import LOCK as WORKSPACE_LOCK
from dgrctl.upstream.stack import verify_workspace

PREDICATE_TYPE = "https://dgr.dev/patch-stack/v1"

_FOLDER = "patches/llama.cpp"
_AGAIN = "make it anew: dgrctl patch record"


class RecordedPatch(Record, frozen=True):
    """A patch file."""

    name: Text
    sha256: Sha256Hex


class StackRecord(Record, frozen=True):
    """An applied stack.

    Attributes:
        pin: The upstream commit, and ``upstream_tree`` its tree.
        patches: In the order applied.
        stack_digest: See :func:`dgrctl.upstream.series.stack_digest`.
        head, tree: The commit and the tree after the last patch; every file of the workspace hashed to that tree.
        changed_lines: Added and removed lines of all patches.
        lock_sha256: Of ``series.lock``.
    """

    pin: CommitHex
    upstream_tree: CommitHex
    patches: tuple[RecordedPatch, ...]
    stack_digest: Sha256Hex
    head: CommitHex
    tree: CommitHex
    changed_lines: Count
    lock_sha256: Sha256Hex


@dataclass(frozen=True)
class Recorded:
    """A record and its file. ``written``: it was signed now; an equal one that verifies is left as it is."""

    record: StackRecord
    path: Path
    sha256: str
    written: bool


def stack_record_path(layout: Layout) -> Path:
    """Where the signed record lies."""
    return layout.certs / "stack.dsse.json"


def record_stack(layout: Layout, key: SigningKey) -> Recorded:
    """Proves the workspace by hashing every file of it, and signs what it holds.

    Raises:
        PatchError, IntegrityError: the stack is not applied, or the workspace, a patch or the lock was changed.
        StorageError: the disk is full; an older record is unchanged.
    """
    record = _proven(layout)
    path = stack_record_path(layout)
    if not _stands(layout, record, path):
        data = sign(statement_bytes(tuple(subjects_of(record)), PREDICATE_TYPE, record), [key])
        write_atomic(path, data)
        return Recorded(record, path, sha256_file(path), written=True)
    return Recorded(record, path, sha256_file(path), written=False)


def stack_record_of(signed: Signed, where: str) -> StackRecord:
    """The record in a statement whose signatures verified.

    Raises:
        EvidenceError: another predicate type, other fields than the format's, a stack digest that is not that of its patches, or
            other subjects than the files that it speaks of.
    """
    statement = signed.statement
    if statement.predicate_type != PREDICATE_TYPE:
        raise EvidenceError(f"the predicate type is {statement.predicate_type}, not {PREDICATE_TYPE}", where=where, remedy=_AGAIN)
    record = convert(statement.predicate, StackRecord, what="stack record", where=where)
    if record.stack_digest != stack_digest(record.pin, [(patch.name, patch.sha256) for patch in record.patches]):
        raise EvidenceError("its stack_digest is not that of its patches", where=where, remedy=_AGAIN)
    if set(statement.subject) != set(subjects_of(record)):
        raise EvidenceError("its subjects are not the files that it speaks of", where=where, remedy=_AGAIN)
    return record


def is_of_this_checkout(record: StackRecord, layout: Layout) -> bool:
    """Whether the lock here is the recorded one."""
    path = layout.patches / LOCK_NAME
    return path.is_file() and sha256_file(path) == record.lock_sha256


def materials(record: StackRecord) -> list[dict[str, object]]:
    """What a build from this stack depends on, as in-toto resource descriptors (``resolvedDependencies`` of SLSA provenance v1).

    Source: https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md
    """
    return [
        {"name": "upstream", "digest": {"gitCommit": record.pin, "gitTree": record.upstream_tree}},
        {"name": _FOLDER, "digest": {"sha256": record.stack_digest}},
        {"name": "upstream-with-patches", "digest": {"gitCommit": record.head, "gitTree": record.tree}},
    ]


def subjects_of(record: StackRecord) -> Iterator[Subject]:
    """The files that a record is about, by their paths in the checkout."""
    yield Subject.of(f"{_FOLDER}/{LOCK_NAME}", record.lock_sha256)
    for patch in record.patches:
        yield Subject.of(f"{_FOLDER}/{patch.name}", patch.sha256)


def _proven(layout: Layout) -> StackRecord:
    # One hold for proof and reading: no export comes in between.
    with state_lock(layout, WORKSPACE_LOCK, shared=True):
        verify_workspace(layout)
        lock = load_lock(layout)
        lock_sha256 = sha256_file(layout.patches / LOCK_NAME)
    return StackRecord(
        pin=lock.pin,
        upstream_tree=lock.upstream_tree,
        patches=tuple(RecordedPatch(name=patch.name, sha256=patch.sha256) for patch in lock.patches),
        stack_digest=lock.stack_digest,
        head=lock.head,
        tree=lock.tree,
        changed_lines=sum(patch.added + patch.removed for patch in lock.patches),
        lock_sha256=lock_sha256,
    )


def _stands(layout: Layout, record: StackRecord, path: Path) -> bool:
    """Whether the file holds this record, signed by a key of this machine."""
    if not path.exists():
        return False
    try:
        signed = open_signed(read_evidence(path), str(path), local_trust(layout))
        return stack_record_of(signed, str(path)) == record
    except EvidenceError:
        return False
