"""``dgrctl fetch``: upstream at the pin in ``.dgr/upstream/``, proven, whatever brought it.

The clone is made in a temporary sibling, proven there, and renamed into place; so the pristine folder is absent or right, and a
kill at any point leaves only a sibling that the next run removes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dgrctl.console import note, progress
from dgrctl.errors import DgrError, FetchError, IntegrityError, StorageError, UsageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
from dgrctl.upstream.git import Repository
from dgrctl.upstream.manifest import Transport, UpstreamManifest, load_manifest, transport_name
from dgrctl.upstream.transports import bring
from dgrctl.upstream.worktree import differences, name_some, snapshot

LOCK = "upstream"

_REPLACE = "dgrctl fetch --force replaces it; nothing of yours belongs in there"


@dataclass(frozen=True)
class FetchResult:
    """What lies in the pristine folder now. ``transport`` brought it: "git", "sdist", "path"; None if nothing had to be done."""

    commit: str
    tree: str
    transport: str | None
    changed: bool


def fetch(layout: Layout, *, transport: str | None = None, source: Path | None = None, force: bool = False) -> FetchResult:
    """Brings upstream at the pin, unless it is there already and proves right.

    Args:
        transport: Use only the manifest's transport of this name.
        source: Use only this bundle or clone.
        force: Replace a pristine folder even if it was changed.

    Raises:
        IntegrityError: the pristine folder was changed; names the file.
        FetchError: nothing that was tried could bring the pin; lists each attempt.
        StorageError: the disk is full or read-only.
        UsageError: no such transport, or both ``transport`` and ``source``.
    """
    manifest = load_manifest(layout)
    attempts = _attempts(manifest, transport, source)
    there = FetchResult(manifest.commit, manifest.tree, None, changed=False)
    if not force:
        # Together with others who only read, such as a build that takes minutes.
        with state_lock(layout, LOCK, shared=True):
            if _is_there(layout, manifest) and not _leftovers(layout):
                return there
    with state_lock(layout, LOCK):
        for leftover in _leftovers(layout):
            shutil.rmtree(leftover, ignore_errors=True)
        # Another process may have brought it in between.
        if not force and _is_there(layout, manifest):
            return there
        name = _try_all(layout, manifest, attempts)
        return FetchResult(manifest.commit, manifest.tree, name, changed=True)


def verify_pristine(layout: Layout) -> None:
    """Proves by hashing that the pristine folder holds the pin and nothing else. Takes about half a second.

    Raises:
        FetchError: it was not fetched yet, or holds a former pin.
        IntegrityError: it was changed; names the file.
    """
    manifest = load_manifest(layout)
    with state_lock(layout, LOCK, shared=True):
        verify_pristine_locked(layout, manifest)


def verify_pristine_locked(layout: Layout, manifest: UpstreamManifest) -> None:
    """:func:`verify_pristine` for those who hold the lock "upstream" already (a second lock would wait for the first)."""
    if not layout.pristine.exists():
        raise FetchError(f"{manifest.name} was not fetched yet", where=str(layout.pristine), remedy="dgrctl fetch")
    if _is_former_pin(layout, manifest):
        raise FetchError("the fetched commit is not the pin any more", where=str(layout.pristine), remedy="dgrctl fetch")
    _verify(layout.pristine, manifest)


def _is_there(layout: Layout, manifest: UpstreamManifest) -> bool:
    """Whether the pin is there, proven; False if nothing is, or a former pin. Raises IntegrityError if it was changed."""
    if not layout.pristine.exists() or _is_former_pin(layout, manifest):
        return False
    _verify(layout.pristine, manifest)
    return True


def _attempts(manifest: UpstreamManifest, name: str | None, source: Path | None) -> dict[str, Transport | Path]:
    if source is not None:
        if name is not None:
            raise UsageError("--from already says where from", where="--transport", remedy="give one of --transport and --from")
        return {"path": source}
    known: dict[str, Transport | Path] = {transport_name(each): each for each in manifest.transports}
    if name is None:
        return known
    if name not in known:
        raise UsageError(f"the manifest has no transport '{name}'", where="--transport", remedy=f"one of: {', '.join(known)}")
    return {name: known[name]}


def _try_all(layout: Layout, manifest: UpstreamManifest, attempts: dict[str, Transport | Path]) -> str:
    """Installs what the first working transport brings; returns its name."""
    failures: list[str] = []
    for name, transport in attempts.items():
        with storage_errors(layout.pristine.parent):
            folder = Path(tempfile.mkdtemp(prefix=f".{layout.pristine.name}.", suffix=".partial", dir=_parent(layout)))
        try:
            clone = folder / "clone"
            with storage_errors(folder):
                bring(layout, manifest, transport, clone)
            _prove(clone, manifest)
            _install(clone, layout.pristine)
        except StorageError:
            raise
        except DgrError as error:
            note(f"transport {name} does not work: {error.what}{_last_line(error)}")
            failures.append(_attempt_text(name, error))
        else:
            return name
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    raise FetchError(
        f"nothing that was tried could bring {manifest.name} at {manifest.commit}",
        where=", ".join(attempts),
        detail="\n".join(failures),
        remedy="dgrctl fetch --from PATH takes a bundle or a clone that you have",
    )


def _last_line(error: DgrError) -> str:
    lines = (error.detail or "").splitlines()
    return f": {lines[-1]}" if lines else ""


def _attempt_text(name: str, error: DgrError) -> str:
    lines = [f"{name}: {error.what}" + (f" ({error.where})" if error.where else "")]
    lines += [f"    {line}" for line in (error.detail or "").splitlines()]
    if error.remedy:
        lines.append(f"    do: {error.remedy}")
    return "\n".join(lines)


def _parent(layout: Layout) -> Path:
    layout.pristine.parent.mkdir(parents=True, exist_ok=True)
    return layout.pristine.parent


def _prove(clone: Path, manifest: UpstreamManifest) -> None:
    """The one check that every transport ends in."""
    repository = Repository(clone, raises=IntegrityError)
    with progress("Proving that it is the pin", total=3) as update:
        repository.run("fsck", "--full", "--no-dangling", "--no-progress")
        update(1, None)
        status = repository.run("status", "--porcelain", "--ignored", "--untracked-files=all", "-z")
        if status:
            first = status.split(b"\0")[0].decode("utf-8", "backslashreplace")
            raise IntegrityError("git does not find the checked-out tree clean", where=first)
        update(2, None)
        _verify(clone, manifest)
        update(3, None)


def _verify(folder: Path, manifest: UpstreamManifest) -> None:
    """Commit, tree, and every byte on disk."""
    repository = Repository(folder, raises=IntegrityError)
    head, tree = repository.resolve_all("HEAD^{commit}", "HEAD^{tree}")
    if head is None and not repository.is_repository():
        raise IntegrityError("this is not the git clone that was put there", where=str(folder), remedy=_REPLACE)
    if head != manifest.commit or tree != manifest.tree:
        raise IntegrityError(
            f"HEAD is commit {head} with tree {tree}; the manifest names commit {manifest.commit} with tree {manifest.tree}",
            where=str(folder),
            remedy=_REPLACE,
        )
    found = differences(repository, manifest.tree, snapshot(folder))
    if found:
        raise IntegrityError(
            f"{len(found)} file(s) of the fetched source are not what was fetched",
            where=str(folder / found[0].path),
            detail=name_some(found),
            remedy=_REPLACE,
        )


def _is_former_pin(layout: Layout, manifest: UpstreamManifest) -> bool:
    """Whether an intact fetch of another commit lies there: the manifest moved on since, and nobody changed a byte."""
    head, tree = Repository(layout.pristine, raises=IntegrityError).resolve_all("HEAD^{commit}", "HEAD^{tree}")
    if head is None or tree is None or head == manifest.commit:
        return False
    return snapshot(layout.pristine).tree == tree


def _install(clone: Path, target: Path) -> None:
    """Puts ``clone`` at ``target``. A kill between the renames leaves no pristine folder, never a wrong one."""
    with storage_errors(target):
        if os.path.lexists(target):
            target.rename(clone.parent / "former")
        clone.rename(target)


def _leftovers(layout: Layout) -> list[Path]:
    """What killed runs left. A git that outlived its dgrctl may still be writing there; what it adds goes with a later run."""
    return list(layout.pristine.parent.glob(f".{layout.pristine.name}.*"))
