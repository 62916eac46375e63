"""``dgrctl patch``: the stack applied to the pin, its state, and the proof of both.

Patches become commits in the object store of a new clone; only when tree and HEAD are those of ``series.lock`` is anything
checked out, and only when that proves right is it renamed to ``.dgr/workspace/``. So the workspace is absent or whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from dgrctl.console import progress
from dgrctl.errors import IntegrityError, PatchError
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
from dgrctl.upstream import fetch
from dgrctl.upstream.commits import Tip, commit_patches, read_commits
from dgrctl.upstream.manifest import UpstreamManifest, load_manifest
from dgrctl.upstream.patchfile import Patch
from dgrctl.upstream.replace import recover, replacement_pending
from dgrctl.upstream.series import LOCK_NAME, Lines, Series, SeriesLock, load_lock, load_series
from dgrctl.upstream.workspace import NewWorkspace, WorkspaceState, inspect, leftovers, move_head, open_workspace, sweep
from dgrctl.upstream.worktree import differences, name_some, snapshot

LOCK = "workspace"

_KEEP_OR_DISCARD = (
    "commit what you want to keep in the workspace and run dgrctl patch export; dgrctl patch apply --force discards all of it"
)


@dataclass(frozen=True)
class PatchStatus:
    """The stack and the workspace.

    Attributes:
        pin, stack_digest, tree, head: What the manifest and series.lock name: the commit patched, the stack's identity, and the
            tree and commit that applying it gives.
        applied: The workspace holds exactly that, proven by hashing every file.
        dirty: Paths in the workspace that differ from its own HEAD.
        drift: In words, every other way in which manifest, patches, lock and workspace disagree.
        workspace_head, workspace_tree: What HEAD is there now; None without a workspace.
        patches: File names in the order applied.
        lines: The stack's size and budget.
        changed: Whether the command that returns this changed the workspace.
    """

    pin: str
    stack_digest: str
    tree: str
    head: str
    applied: bool
    dirty: tuple[str, ...]
    drift: tuple[str, ...]
    workspace_head: str | None
    workspace_tree: str | None
    patches: tuple[str, ...]
    lines: Lines
    changed: bool = False


def status(layout: Layout) -> PatchStatus:
    """Tells how things stand, and refuses only what cannot be read at all.

    Raises:
        InputError: manifest or lock is missing or malformed.
    """
    manifest = load_manifest(layout)
    with state_lock(layout, LOCK, shared=True):
        lock = load_lock(layout)
        drift: list[str] = []
        try:
            load_series(layout, manifest)
        except PatchError as error:
            drift.append(f"{error.where}: {error.what}")
        try:
            state = inspect(layout)
        except PatchError as error:
            drift.append(f"{error.where}: {error.what}")
            state = WorkspaceState(None, None, None, ())
        if state.exists and state.head != lock.head:
            drift.append(_head_text(state, lock))
        return _status(Series(lock, ()), state, drift)


def apply(layout: Layout, *, force: bool = False) -> PatchStatus:
    """Makes the workspace hold the stack, unless it does already.

    Args:
        force: Discard whatever was done in the workspace.

    Raises:
        FetchError: upstream was not fetched.
        IntegrityError: a file of the workspace, or of the pristine source, was changed; names it.
        PatchError: patches and lock do not belong together, do not apply exactly, or do not give what the lock names; or the
            workspace holds commits that no patch holds.
        StorageError: the disk is full or read-only.
    """
    if not force and (there := _applied_already(layout)) is not None:
        return there
    with workspace_locked(layout) as manifest:
        series = load_series(layout, manifest)
        if not force:
            state = inspect(layout)
            _refuse_dirty(layout, state)
            if state.head == series.lock.head:
                _check_tip(layout, series, Tip(series.lock.head, state.tree or ""))
                return _status(series, state, [])
            if state.holds_work:
                return _adopt(layout, series, state)
        _build(layout, manifest, series)
        return _status(series, _as_locked(series), [], changed=True)


def unapply(layout: Layout, *, force: bool = False) -> PatchStatus:
    """Takes the stack off: makes the workspace hold the pin alone, unless it does already or there is none.

    Args:
        force: Discard whatever was done in the workspace.

    Raises:
        FetchError: upstream was not fetched.
        IntegrityError: a file of the workspace, or of the pristine source, was changed; names it.
        PatchError: the workspace holds commits that no patch holds.
        StorageError: the disk is full or read-only.
    """
    with workspace_locked(layout) as manifest:
        lock = load_lock(layout)
        if not force:
            state = inspect(layout)
            _refuse_dirty(layout, state)
            if state.holds_work:
                raise PatchError(_head_text(state, lock), where=str(layout.workspace), remedy=_KEEP_OR_DISCARD)
            if not state.exists or state.head == manifest.commit:
                return _status(Series(lock, ()), state, [])
        with (
            state_lock(layout, fetch.LOCK, shared=True),
            progress(f"Taking the stack off {manifest.name} {manifest.version}"),
            NewWorkspace(layout, manifest.commit) as new,
        ):
            fetch.verify_pristine_locked(layout, manifest)
            new.clone()
            _install(new, Tip(manifest.commit, manifest.tree))
        pin = WorkspaceState(manifest.commit, manifest.tree, manifest.commit, ())
        return _status(Series(lock, ()), pin, [], changed=True)


def _applied_already(layout: Layout) -> PatchStatus | None:
    """The status if there is nothing to do: looked up together with others who only read, such as a build that takes minutes."""
    manifest = load_manifest(layout)
    with state_lock(layout, LOCK, shared=True):
        if replacement_pending(layout.patches) or leftovers(layout):
            return None
        series = load_series(layout, manifest)
        state = inspect(layout)
        result = _status(series, state, [])
        return result if result.applied else None


def verify_workspace(layout: Layout) -> PatchStatus:
    """Proves that the workspace holds exactly the stack: patches, lock, HEAD, and every byte on disk. Takes about half a second.

    Raises:
        PatchError: not applied, or not this stack; patches or lock were changed.
        IntegrityError: a file of the workspace was changed; names it.
    """
    manifest = load_manifest(layout)
    with state_lock(layout, LOCK, shared=True):
        series = load_series(layout, manifest)
        state = inspect(layout)
        if not state.exists:
            raise PatchError("the patch stack was not applied yet", where=str(layout.workspace), remedy="dgrctl patch")
        _refuse_dirty(layout, state)
        if state.head != series.lock.head:
            _refuse_other_head(layout, series, state)
        _check_tip(layout, series, Tip(series.lock.head, state.tree or ""))
        return _status(series, state, [])


@contextmanager
def workspace_locked(layout: Layout) -> Iterator[UpstreamManifest]:
    """Holds the workspace for a command that changes it; gives the manifest.

    First finishes what a killed command had decided, so that the manifest is the one that goes with the patches.
    """
    with state_lock(layout, LOCK):
        sweep(layout)
        recover(layout)
        yield load_manifest(layout)


def _build(layout: Layout, manifest: UpstreamManifest, series: Series) -> None:
    named = _named(layout, series)
    with (
        state_lock(layout, fetch.LOCK, shared=True),
        progress(f"Applying {len(named)} patch(es) to {manifest.name} {manifest.version}", total=4) as update,
        NewWorkspace(layout, manifest.commit) as new,
    ):
        fetch.verify_pristine_locked(layout, manifest)
        update(1, None)
        new.clone()
        update(2, None)
        _check_tip(layout, series, new.commit(named))
        update(3, None)
        _install(new, Tip(series.lock.head, series.lock.tree))
        update(4, None)


def _install(new: NewWorkspace, tip: Tip) -> None:
    """Checks ``tip`` out, proves what then lies on disk, and puts it in the workspace's place."""
    new.check_out(tip.head)
    found = differences(new.repository, tip.tree, snapshot(new.repository.folder))
    if found:
        raise IntegrityError("what git checked out is not what was committed", where=found[0].path, detail=name_some(found))
    new.install()


def _check_tip(layout: Layout, series: Series, tip: Tip) -> None:
    if tip != Tip(series.lock.head, series.lock.tree):
        raise PatchError(
            f"the patches give tree {tip.tree} and HEAD {tip.head}; "
            f"the lock names tree {series.lock.tree} and HEAD {series.lock.head}",
            where=str(layout.patches / LOCK_NAME),
            remedy="git checkout -- patches restores it, if it was changed by hand",
        )


def _adopt(layout: Layout, series: Series, state: WorkspaceState) -> PatchStatus:
    """Takes commits that are the stack's patches already (an export was killed before it moved HEAD); refuses any other."""
    repository = open_workspace(layout)
    if state.tree != series.lock.tree or repository.resolve(f"{series.lock.pin}^{{commit}}") is None:
        _refuse_other_head(layout, series, state)
    tip = commit_patches(repository, series.lock.pin, _named(layout, series))
    _check_tip(layout, series, tip)
    present = [patch for patch, _tree in read_commits(repository, series.lock.pin, str(state.head))]
    if present != list(series.patches):
        _refuse_other_head(layout, series, state)
    move_head(layout, state, tip.head)
    return _status(series, _as_locked(series), [], changed=True)


def _as_locked(series: Series) -> WorkspaceState:
    """The workspace as it is once it was proven to be what the lock names."""
    return WorkspaceState(series.lock.head, series.lock.tree, series.lock.head, ())


def _refuse_dirty(layout: Layout, state: WorkspaceState) -> None:
    if state.dirty:
        raise IntegrityError(
            f"{len(state.dirty)} file(s) of the workspace were changed",
            where=str(layout.workspace / state.dirty[0].path),
            detail=name_some(list(state.dirty)),
            remedy=_KEEP_OR_DISCARD,
        )


def _refuse_other_head(layout: Layout, series: Series, state: WorkspaceState) -> NoReturn:
    """HEAD is not the lock's: because the lock was edited, the workspace holds somebody's commits, or the stack moved on."""
    repository = open_workspace(layout)
    if repository.resolve(f"{series.lock.pin}^{{commit}}") is not None:
        _check_tip(layout, series, commit_patches(repository, series.lock.pin, _named(layout, series)))
    raise PatchError(
        _head_text(state, series.lock),
        where=str(layout.workspace),
        remedy=_KEEP_OR_DISCARD if state.holds_work else "dgrctl patch",
    )


def _named(layout: Layout, series: Series) -> list[tuple[str, Patch]]:
    """The patches with the paths of their files."""
    return [(str(layout.patches / locked.name), patch) for locked, patch in zip(series.lock.patches, series.patches, strict=True)]


def _head_text(state: WorkspaceState, lock: SeriesLock) -> str:
    if state.holds_work:
        why = "the workspace holds commits that are in no patch"
    elif state.head == lock.pin:
        why = "the stack was taken off the workspace"
    else:
        why = "the stack changed since it was applied"
    return f"{why}: HEAD is {state.head}, the lock names {lock.head}"


def _status(series: Series, state: WorkspaceState, drift: list[str], *, changed: bool = False) -> PatchStatus:
    lock = series.lock
    right = (state.head, state.tree) == (lock.head, lock.tree)
    if state.head == lock.head and not right:
        drift = [*drift, f"the lock names tree {lock.tree}, its HEAD has tree {state.tree}"]
    return PatchStatus(
        pin=lock.pin,
        stack_digest=lock.stack_digest,
        tree=lock.tree,
        head=lock.head,
        applied=right and not state.dirty and not drift,
        dirty=tuple(difference.path for difference in state.dirty),
        drift=tuple(drift),
        workspace_head=state.head,
        workspace_tree=state.tree,
        patches=tuple(patch.name for patch in lock.patches),
        lines=lock.lines,
        changed=changed,
    )
