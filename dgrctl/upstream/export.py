"""``dgrctl patch export``: the workspace's commits become the patch files and their lock.

Commits take their one form on the way (author, dates, message), so exporting moves the workspace's HEAD to the very commits that
applying the exported patches gives anywhere. Exporting twice changes nothing the second time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NoReturn

from dgrctl.errors import PatchError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.upstream.commits import commit_patches, read_commits
from dgrctl.upstream.manifest import UpstreamManifest
from dgrctl.upstream.patchfile import MAX_PATCH_BYTES, Patch, file_name, parse_patch
from dgrctl.upstream.replace import replace_files
from dgrctl.upstream.series import LOCK_NAME, SeriesLock, load_lock, make_lock, patch_names, render_lock
from dgrctl.upstream.stack import workspace_locked
from dgrctl.upstream.workspace import WorkspaceState, inspect, move_head, open_workspace
from dgrctl.upstream.worktree import name_some

_CHANGE_COMMIT = "change that commit in the workspace (git rebase -i upstream), then run dgrctl patch export again"


@dataclass(frozen=True)
class ExportResult:
    """What the export did: file names written and removed (none of either: nothing had to be done), and the lock as it is now."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    lock: SeriesLock


def export(layout: Layout, *, force: bool = False) -> ExportResult:
    """Writes the commits between the pin and the workspace's HEAD as patches, with their lock: all files or none.

    Args:
        force: Also where the patches changed since the workspace was made from them, which this undoes.

    Raises:
        InputError: the old lock is missing or malformed.
        PatchError: the workspace is missing or has uncommitted changes; its commits are no straight line on the pin, are empty,
            binary or over the budget; or a patch file was added or edited by hand, which this would overwrite.
        StorageError: the disk is full or read-only; the old files are unchanged.
    """
    with workspace_locked(layout) as manifest:
        former = load_lock(layout)
        state = inspect(layout)
        head, tree = _committed(layout, state)
        repository = open_workspace(layout)
        _require_pin(layout, manifest)
        patches = [patch for patch, _tree in read_commits(repository, manifest.commit, head)]
        files = {file_name(number, patch.message): patch.render() for number, patch in enumerate(patches, start=1)}
        _refuse_unreadable(files, patches)
        tip = commit_patches(repository, manifest.commit, list(zip(files, patches, strict=True)))
        if tip.tree != tree:
            raise PatchError(
                f"the exported patches would give tree {tip.tree}, the workspace has {tree}; nothing was written",
                where=str(layout.workspace),
            )
        lock = make_lock(manifest, files, patches, tree=tip.tree, head=tip.head)
        _refuse_over_budget(layout, lock)
        _refuse_to_overwrite(layout, former, files)
        if not force and lock != former and state.applied != former.head:
            _refuse_former_stack(layout, state)
        result = _write(layout, files, lock)
        move_head(layout, state, tip.head)
        return result


def _committed(layout: Layout, state: WorkspaceState) -> tuple[str, str]:
    """HEAD and its tree, which must be all that there is."""
    if state.head is None or state.tree is None:
        raise PatchError("there is no workspace to export from", where=str(layout.workspace), remedy="dgrctl patch")
    if state.dirty:
        raise PatchError(
            f"{len(state.dirty)} file(s) of the workspace are not committed; only commits are exported",
            where=str(layout.workspace / state.dirty[0].path),
            detail=name_some(list(state.dirty)),
            remedy=f"git -C {layout.workspace} add and commit them, or git checkout them, then dgrctl patch export",
        )
    return state.head, state.tree


def _require_pin(layout: Layout, manifest: UpstreamManifest) -> None:
    if open_workspace(layout).resolve(f"{manifest.commit}^{{commit}}") is None:
        raise PatchError(
            f"the workspace was made for another pin than {manifest.commit}",
            where=str(layout.workspace),
            remedy="restore the manifest to export, or dgrctl patch apply --force to start from the new pin",
        )


def _refuse_unreadable(files: dict[str, bytes], patches: list[Patch]) -> None:
    """What is written must read back as the same patch."""
    for (name, data), patch in zip(files.items(), patches, strict=True):
        if len(data) > MAX_PATCH_BYTES:
            raise PatchError(f"the patch would be {len(data)} bytes long; at most {MAX_PATCH_BYTES} are read", where=name)
        subject = patch.message.partition("\n")[0]
        try:
            same = parse_patch(data, name) == patch
        except PatchError as error:
            raise PatchError(
                f"the commit '{subject}' cannot be written as a patch: {error.what}", where=name, remedy=_CHANGE_COMMIT
            ) from error
        if not same:
            raise PatchError(f"the commit '{subject}' cannot be written as a patch", where=name, remedy=_CHANGE_COMMIT)


def _refuse_over_budget(layout: Layout, lock: SeriesLock) -> None:
    if over := lock.lines.over_budget():
        raise PatchError(
            f"the stack would have more changed lines than its budget allows: {'; '.join(over)}",
            where=str(layout.workspace),
            remedy="make the change smaller; nothing was written, the commits are still in the workspace",
        )


def _refuse_to_overwrite(layout: Layout, former: SeriesLock, files: dict[str, bytes]) -> None:
    """A patch file that is neither the old one nor the new one holds somebody's work."""
    locked = {patch.name: patch.sha256 for patch in former.patches}
    for name in patch_names(layout):
        data = (layout.patches / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != locked.get(name) and data != files.get(name):
            known = name in locked
            raise PatchError(
                "this patch was edited by hand" if known else "this patch is not one of the stack's",
                where=str(layout.patches / name),
                remedy=f"to restore it: git checkout -- {layout.patches / name}"
                if known
                else "apply it in the workspace (git am --keep-cr --keep-non-patch) and move the file away",
            )


def _refuse_former_stack(layout: Layout, state: WorkspaceState) -> NoReturn:
    """The workspace was made from other patches than those that are here now: a pull brought them, or it was unapplied."""
    raise PatchError(
        "the patches are not those that the workspace was made from; exporting would undo what changed in them since",
        where=str(layout.workspace),
        detail=f"the workspace was made as {state.applied}, HEAD is {state.head}",
        remedy="dgrctl patch makes the workspace anew (carry your commits over with git format-patch and "
        "git am --keep-cr --keep-non-patch); "
        "dgrctl patch export --force replaces the patches by the workspace's commits",
    )


def _write(layout: Layout, files: dict[str, bytes], lock: SeriesLock) -> ExportResult:
    """Replaces what differs; leaves the rest untouched."""
    wanted = files | {LOCK_NAME: render_lock(lock)}
    with storage_errors(layout.patches):
        changed = {name: data for name, data in wanted.items() if _content(layout, name) != data}
        removed = [name for name in patch_names(layout) if name not in files]
        if changed or removed:
            replace_files(layout, changed, removed)
    return ExportResult(tuple(changed), tuple(removed), lock)


def _content(layout: Layout, name: str) -> bytes | None:
    try:
        return (layout.patches / name).read_bytes()
    except FileNotFoundError:
        return None
