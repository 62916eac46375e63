"""The stack as files: ``patches/llama.cpp/NNNN-*.patch`` and ``series.lock``, read and proven against each other.

The lock is written by ``dgrctl patch export`` only. Whatever in it follows from the patches is computed again at every reading;
what does not (tree and head) is asserted by applying.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import rfc8785

from dgrctl.documents import load_json
from dgrctl.errors import PatchError
from dgrctl.layout import Layout
from dgrctl.upstream.budget import CORE, changed_lines, limit_of
from dgrctl.upstream.manifest import ObjectId, Sha256, UpstreamManifest
from dgrctl.upstream.patchfile import MAX_PATCH_BYTES, NAME_PATTERN, Patch, parse_patch
from dgrctl.upstream.replace import replacement_pending

LOCK_NAME = "series.lock"

Count = Annotated[int, msgspec.Meta(ge=0)]

_RESTORE = "git checkout -- patches restores it; edits belong in the workspace, from where dgrctl patch export writes it"


class LockedPatch(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One patch: its file's name and SHA-256, and the lines that it adds and removes."""

    name: str
    sha256: Sha256
    added: Count
    removed: Count


class LineCount(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Changed (added plus removed) lines, and the most there may be."""

    changed: Count
    budget: Count


class Lines(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The stack's size: in files of one model architecture, by architecture, and in all others."""

    core: LineCount
    architectures: dict[str, LineCount]

    def over_budget(self) -> list[str]:
        """Who has more lines than it may, in words; empty if all is well."""
        counts = {CORE: self.core} | self.architectures
        return [f"{owner}: {count.changed} of {count.budget}" for owner, count in counts.items() if count.changed > count.budget]


class SeriesLock(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``series.lock``: what the stack is and what applying it gives.

    Attributes:
        pin: The upstream commit it applies to, and ``upstream_tree`` that commit's tree.
        patches: In the order applied.
        stack_digest: See :func:`stack_digest`.
        tree: The git tree after the last patch.
        head: The commit of the last patch (the pin, if there is none).
    """

    schema: Literal[1]
    pin: ObjectId
    upstream_tree: ObjectId
    patches: tuple[LockedPatch, ...]
    stack_digest: Sha256
    tree: ObjectId
    head: ObjectId
    lines: Lines


@dataclass(frozen=True)
class Series:
    """A lock and its patches, proven to belong together."""

    lock: SeriesLock
    patches: tuple[Patch, ...]


def stack_digest(pin: str, patches: Sequence[tuple[str, str]]) -> str:
    """The identity of a stack: SHA-256, hex, over the RFC 8785 (canonical JSON) form of::

        {"patches": [{"name": NAME, "sha256": HEX}, …], "pin": COMMIT, "schema": 1}

    Args:
        patches: (file name, SHA-256 of the file) in the order applied.
    """
    named = [{"name": name, "sha256": digest} for name, digest in patches]
    return hashlib.sha256(rfc8785.dumps({"schema": 1, "pin": pin, "patches": named})).hexdigest()


def make_lock(
    manifest: UpstreamManifest, files: dict[str, bytes], patches: Sequence[Patch], *, tree: str, head: str
) -> SeriesLock:
    """The lock for patch ``files`` (name to bytes, in the order applied) whose parsed form is ``patches``."""
    changes = [patch.changes() for patch in patches]
    locked = tuple(
        LockedPatch(
            name=name,
            sha256=hashlib.sha256(data).hexdigest(),
            added=sum(change.added for change in each),
            removed=sum(change.removed for change in each),
        )
        for (name, data), each in zip(files.items(), changes, strict=True)
    )
    return SeriesLock(
        schema=1,
        pin=manifest.commit,
        upstream_tree=manifest.tree,
        patches=locked,
        stack_digest=stack_digest(manifest.commit, [(patch.name, patch.sha256) for patch in locked]),
        tree=tree,
        head=head,
        lines=count_lines(patches),
    )


def count_lines(patches: Iterable[Patch]) -> Lines:
    """The size of a stack of these patches."""
    counts = {
        owner: LineCount(changed=count, budget=limit_of(owner))
        for owner, count in changed_lines(change for patch in patches for change in patch.changes()).items()
    }
    return Lines(core=counts.pop(CORE), architectures=counts)


def render_lock(lock: SeriesLock) -> bytes:
    """The bytes of ``series.lock``."""
    return msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n"


def patch_names(layout: Layout) -> list[str]:
    """The names of the patch files present, in order. Names that begin with a dot are ours in passing."""
    if not layout.patches.is_dir():
        return []
    return sorted(path.name for path in layout.patches.iterdir() if path.name.endswith(".patch") and path.name[0] != ".")


def load_lock(layout: Layout) -> SeriesLock:
    """Reads ``series.lock``.

    Raises:
        InputError: missing or malformed.
    """
    return load_json(layout.patches / LOCK_NAME, SeriesLock, what="series lock")


def load_series(layout: Layout, manifest: UpstreamManifest) -> Series:
    """Reads the lock and every patch, and proves that they belong together, to the manifest's pin, and within the budget.

    Raises:
        InputError: the lock is missing or malformed.
        PatchError: a patch is missing, extra, renumbered, reordered, edited or truncated, or the lock is edited; names the file.
            Or the stack is over its budget.
    """
    series = read_series(layout, manifest)
    if over := series.lock.lines.over_budget():
        raise PatchError(
            f"the stack has more changed lines than its budget allows: {'; '.join(over)}",
            where=str(layout.patches / LOCK_NAME),
            remedy="make the change smaller in the workspace, then dgrctl patch export",
        )
    return series


def read_series(layout: Layout, manifest: UpstreamManifest) -> Series:
    """Like :func:`load_series`, whatever the stack's size."""
    if replacement_pending(layout.patches):
        raise PatchError("an export or bump was killed halfway", where=str(layout.patches), remedy="dgrctl patch finishes it")
    lock = load_lock(layout)
    lock_path = layout.patches / LOCK_NAME
    if (lock.pin, lock.upstream_tree) != (manifest.commit, manifest.tree):
        raise PatchError(
            f"the lock is for pin {lock.pin} (tree {lock.upstream_tree}), "
            f"the manifest names {manifest.commit} (tree {manifest.tree})",
            where=str(lock_path),
            remedy="git checkout -- patches, or git checkout -- manifests/upstream, restores whichever was changed",
        )
    if lock.stack_digest != stack_digest(lock.pin, [(patch.name, patch.sha256) for patch in lock.patches]):
        raise PatchError(
            "the lock was edited: its stack_digest is not that of its patches", where=str(lock_path), remedy=_RESTORE
        )
    _check_names(layout, lock)
    files = {patch.name: _read_patch(layout.patches / patch.name, patch) for patch in lock.patches}
    patches = tuple(parse_patch(data, str(layout.patches / name)) for name, data in files.items())
    expected = make_lock(manifest, files, patches, tree=lock.tree, head=lock.head)
    if expected != lock:
        fields = [name for name in lock.__struct_fields__ if getattr(lock, name) != getattr(expected, name)]
        raise PatchError(
            f"the lock does not say what follows from its patches: {', '.join(fields)}", where=str(lock_path), remedy=_RESTORE
        )
    return Series(lock, patches)


def _check_names(layout: Layout, lock: SeriesLock) -> None:
    """Every named patch is there, no other is, and they are numbered 1, 2, 3, … in the lock's order."""
    named = [patch.name for patch in lock.patches]
    for number, name in enumerate(named, start=1):
        found = NAME_PATTERN.fullmatch(name)
        if found is None or int(found.group(1)) != number:
            raise PatchError(
                f"patch {number} in the lock is called '{name}'; it must begin with {number:04d}-",
                where=str(layout.patches / LOCK_NAME),
                remedy=_RESTORE,
            )
    present = patch_names(layout)
    for name in named:
        if name not in present:
            raise PatchError("a patch that the lock names is missing", where=str(layout.patches / name), remedy=_RESTORE)
    for name in present:
        if name not in named:
            raise PatchError(
                "this patch is not in the lock",
                where=str(layout.patches / name),
                remedy="remove it; a new patch is a commit in the workspace, from where dgrctl patch export writes it",
            )


def _read_patch(path: Path, locked: LockedPatch) -> bytes:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_PATCH_BYTES:
            raise PatchError(f"this is not a regular file of at most {MAX_PATCH_BYTES} bytes", where=str(path), remedy=_RESTORE)
        data = path.read_bytes()
    except OSError as error:
        raise PatchError(f"this patch cannot be read: {error.strerror}", where=str(path), remedy="make it readable") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != locked.sha256:
        raise PatchError(
            f"this patch was changed: its SHA-256 is {digest}, the lock names {locked.sha256}", where=str(path), remedy=_RESTORE
        )
    return data
