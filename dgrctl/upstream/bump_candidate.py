"""The checkout that a bump would make of this one: written beside it, proven there, and only then taken."""

from __future__ import annotations

from dataclasses import dataclass

from dgrctl.errors import PatchError
from dgrctl.files import storage_errors, write_atomic
from dgrctl.layout import Layout
from dgrctl.upstream import fetch, stack
from dgrctl.upstream.bump_folder import BumpFolder
from dgrctl.upstream.bump_report import BumpState
from dgrctl.upstream.commits import commit_patches, read_commits
from dgrctl.upstream.manifest import UpstreamManifest
from dgrctl.upstream.patchfile import file_name
from dgrctl.upstream.repin import repinned_manifest, repinned_text, require_repinned
from dgrctl.upstream.replace import replace_files
from dgrctl.upstream.series import LOCK_NAME, Series, SeriesLock, load_series, make_lock, patch_names, render_lock
from dgrctl.upstream.workspace import inspect


@dataclass(frozen=True)
class Candidate:
    """A bump's result.

    Attributes:
        layout: The checkout in which it is proven.
        former: The lock that it replaces, and ``lock`` the one that it brings.
        manifest: The upstream manifest's bytes.
        files: The patch folder's files, the lock among them.
        clone: Where its upstream can be fetched from.
    """

    layout: Layout
    former: SeriesLock
    lock: SeriesLock
    manifest: bytes
    files: dict[str, bytes]
    clone: BumpFolder

    def check(self) -> None:
        """Fetches and applies it as any checkout, with every proof that belongs to that.

        Raises:
            DgrError: it is not what it should be.
        """
        fetch.fetch(self.layout, source=self.clone.clone)
        stack.apply(self.layout)


def make_candidate(layout: Layout, folder: BumpFolder, manifest: UpstreamManifest, series: Series, state: BumpState) -> Candidate:
    """Writes the candidate of a bump whose patches all apply: the commits between the target and ``state.tip``.

    Raises:
        InputError: the manifest cannot be moved.
        StorageError: the disk is full.
    """
    wanted = repinned_manifest(manifest, state.target)
    text = repinned_text(layout.upstream_manifest.read_text(encoding="utf-8"), manifest, wanted)
    repository = folder.repository
    patches = [patch for patch, _tree in read_commits(repository, wanted.commit, state.tip)]
    files = {file_name(number, patch.message): patch.render() for number, patch in enumerate(patches, start=1)}
    tip = commit_patches(repository, wanted.commit, list(zip(files, patches, strict=True)))
    lock = make_lock(wanted, files, patches, tree=tip.tree, head=tip.head)
    candidate = Candidate(
        layout=folder.candidate,
        former=series.lock,
        lock=lock,
        manifest=text.encode(),
        files=files | {LOCK_NAME: render_lock(lock)},
        clone=folder,
    )
    with storage_errors(candidate.layout.root):
        candidate.layout.patches.mkdir(parents=True, exist_ok=True)
        for name in set(patch_names(candidate.layout)) - set(files):
            (candidate.layout.patches / name).unlink()
        for name, data in candidate.files.items():
            write_atomic(candidate.layout.patches / name, data)
        write_atomic(candidate.layout.upstream_manifest, candidate.manifest)
    require_repinned(candidate.layout, wanted)
    return candidate


def commit_candidate(layout: Layout, candidate: Candidate) -> None:
    """Writes pin, patches and lock: all or nothing.

    Raises:
        PatchError: patches or workspace changed meanwhile.
        StorageError: the disk is full or read-only; nothing changed.
    """
    with stack.workspace_locked(layout) as manifest:
        if load_series(layout, manifest).lock != candidate.former or inspect(layout).holds_work:
            raise PatchError(
                "the patches or the workspace changed while the bump was proven",
                where=str(layout.patches),
                remedy="begin again: dgrctl patch bump",
            )
        changed = {name: data for name, data in candidate.files.items() if _differs(layout, name, data)}
        removed = [name for name in patch_names(layout) if name not in candidate.files]
        text = candidate.manifest if layout.upstream_manifest.read_bytes() != candidate.manifest else None
        if changed or removed or text is not None:
            replace_files(layout, changed, removed, manifest=text)


def _differs(layout: Layout, name: str, data: bytes) -> bool:
    path = layout.patches / name
    return not path.is_file() or path.read_bytes() != data
