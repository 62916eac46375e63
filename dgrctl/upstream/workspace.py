"""The workspace: a clone of the pristine source with one commit per patch, and what has been done to it since.

Its git knows two names: the tag ``upstream`` (the pin) and the branch ``stack`` (what is worked on). The ref
``refs/dgr/applied`` remembers the commit that dgrctl put there, which tells a workspace that is merely out of date, and may be
replaced, from one that holds somebody's work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dgrctl.errors import PatchError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.upstream.commits import Tip, commit_patches
from dgrctl.upstream.git import SCRATCH, Repository
from dgrctl.upstream.patchfile import AUTHOR_EMAIL, AUTHOR_NAME, Patch
from dgrctl.upstream.transports import clone_unchecked, pin_attributes
from dgrctl.upstream.worktree import Difference, differences, snapshot

APPLIED = "refs/dgr/applied"
BRANCH = "stack"

# For those who work in there with their own git: their global settings and hooks must not change what a patch becomes.
SETTINGS = {
    "commit.gpgSign": "false",
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.hooksPath": os.devnull,
    "core.safecrlf": "false",
    "user.email": AUTHOR_EMAIL,
    "user.name": AUTHOR_NAME,
}


@dataclass(frozen=True)
class WorkspaceState:
    """What lies in the workspace.

    Attributes:
        head: The commit checked out, and ``tree`` its tree; both None where there is no workspace.
        applied: The commit that dgrctl put there last.
        dirty: How the files on disk differ from HEAD.
    """

    head: str | None
    tree: str | None
    applied: str | None
    dirty: tuple[Difference, ...]

    @property
    def exists(self) -> bool:
        return self.head is not None

    @property
    def holds_work(self) -> bool:
        """Whether replacing it would lose something: files changed, or commits that dgrctl did not put there."""
        return self.exists and (bool(self.dirty) or self.head != self.applied)


def open_workspace(layout: Layout) -> Repository:
    """The workspace's repository; whether it is one, :func:`inspect` tells."""
    return Repository(layout.workspace, raises=PatchError)


def inspect(layout: Layout) -> WorkspaceState:
    """Looks at the workspace: HEAD, and every byte on disk against it.

    Raises:
        PatchError: something is there, but it is not a git clone.
        IntegrityError: a file cannot be read.
    """
    if not os.path.lexists(layout.workspace):
        return WorkspaceState(None, None, None, ())
    repository = open_workspace(layout)
    head, tree, applied = repository.resolve_all("HEAD^{commit}", "HEAD^{tree}", APPLIED)
    if head is None or tree is None:
        raise PatchError(
            "the workspace is not the git clone that was put there",
            where=str(layout.workspace),
            remedy="dgrctl patch apply --force makes it anew, discarding what is there",
        )
    dirty = tuple(differences(repository, tree, snapshot(layout.workspace)))
    return WorkspaceState(head, tree, applied, dirty)


def move_head(layout: Layout, state: WorkspaceState, head: str) -> None:
    """Puts the stack's own commit in place of HEAD, which has the same tree: index and files stay as they are."""
    repository = open_workspace(layout)
    if state.head is not None and state.head != head:
        repository.run("update-ref", "-m", "dgrctl patch", "HEAD", head, state.head)
    if state.applied != head:
        repository.run("update-ref", APPLIED, head)


def leftovers(layout: Layout) -> list[Path]:
    """What killed runs left beside the workspace, and in its git folder."""
    beside = layout.workspace.parent.glob(f".{layout.workspace.name}.*")
    return [*beside, *(layout.workspace / ".git").glob(f"{SCRATCH}*")]


def sweep(layout: Layout) -> None:
    """Removes what killed runs left. Only for the holder of the lock "workspace"."""
    for leftover in leftovers(layout):
        shutil.rmtree(leftover, ignore_errors=True)


class NewWorkspace:
    """A workspace in the making, in a temporary sibling folder; as a context manager, which removes the folder at the end."""

    def __init__(self, layout: Layout, pin: str) -> None:
        self._layout = layout
        self._pin = pin

    def __enter__(self) -> NewWorkspace:
        target = self._layout.workspace
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        self._clone = self._folder / "clone"
        self.repository = Repository(self._clone, raises=PatchError)
        return self

    def __exit__(self, *_exception: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def clone(self) -> None:
        """Clones the pristine source, without checking anything out."""
        source = f"file://{self._layout.pristine}"
        settings = [part for name, value in SETTINGS.items() for part in ("--config", f"{name}={value}")]
        clone_unchecked(source, self._clone, *settings, raises=PatchError)
        pin_attributes(self.repository)

    def commit(self, patches: Sequence[tuple[str, Patch]]) -> Tip:
        """Makes the stack's commits; see :func:`dgrctl.upstream.commits.commit_patches`."""
        return commit_patches(self.repository, self._pin, patches)

    def check_out(self, head: str) -> None:
        """Checks ``head`` out on the branch, and names the pin."""
        with storage_errors(self._clone):
            self.repository.run("update-ref", "refs/tags/upstream", self._pin)
            self.repository.run("checkout", "--quiet", "-B", BRANCH, head)
            self.repository.run("update-ref", APPLIED, head)

    def install(self) -> None:
        """Renames it into place. A kill between the renames leaves no workspace, never a wrong one."""
        target = self._layout.workspace
        with storage_errors(target):
            if os.path.lexists(target):
                target.rename(self._folder / "former")
            self._clone.rename(target)
