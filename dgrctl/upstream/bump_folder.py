"""``.dgr/bump/``: the throw-away clone that a bump works in, and what it remembers between two commands.

Nothing outside of it changes before a bump is committed, so removing it restores exactly what was there. ``state.json`` is
written last and removed first: a folder without it is what a killed command left, and goes with the next one.
"""

from __future__ import annotations

import shutil
from typing import NoReturn

import msgspec

from dgrctl.documents import load_json
from dgrctl.errors import InputError, PatchError
from dgrctl.files import storage_errors, write_atomic
from dgrctl.layout import Layout
from dgrctl.upstream.attempt import Step
from dgrctl.upstream.bump_report import BumpState
from dgrctl.upstream.commits import Tip, commit
from dgrctl.upstream.git import Repository
from dgrctl.upstream.workspace import BRANCH, SETTINGS
from dgrctl.upstream.worktree import differences, name_some, snapshot

_MARKER = b"<<<<<<< "


class BumpFolder:
    """The folder of a checkout's one bump."""

    def __init__(self, layout: Layout) -> None:
        self.path = layout.state / "bump"
        self.clone = self.path / layout.pristine.name
        self.candidate = Layout(self.path / "candidate")
        self._state = self.path / "state.json"

    @property
    def repository(self) -> Repository:
        """The clone; its work tree is filled only where a conflict waits."""
        return Repository(self.clone, raises=PatchError)

    @property
    def is_waiting(self) -> bool:
        """Whether something is remembered."""
        return self._state.exists()

    def load(self) -> BumpState | None:
        """The bump under way; None if there is none.

        Raises:
            InputError: what it remembers was changed.
        """
        if not self.is_waiting:
            return None
        try:
            return load_json(self._state, BumpState, what="state of a bump")
        except InputError as error:
            raise InputError(error.what, where=error.where, remedy="dgrctl patch bump --abort") from error

    def save(self, state: BumpState) -> None:
        """Remembers a bump.

        Raises:
            StorageError: the disk is full; what was remembered stands.
        """
        write_atomic(self._state, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")

    def clear(self) -> bool:
        """Forgets everything; returns whether there was anything."""
        with storage_errors(self.path):
            there = self.path.exists()
            self._state.unlink(missing_ok=True)
            if there:
                shutil.rmtree(self.path)
        return there

    def start(self) -> None:
        """Begins with nothing in it."""
        self.clear()
        with storage_errors(self.path):
            self.path.mkdir(parents=True)

    def prepare(self, state: BumpState, step: Step) -> BumpState:
        """Fills the work tree with ``state.tip`` and the conflict that ``step`` has with it; remembers what it left there."""
        repository = self.repository
        self.save(msgspec.structs.replace(state, prepared=False, left=None))
        change = commit(repository, commit(repository, None, step.before, "base"), step.after, step.patch.message)
        # A kill may have left an index.lock; nobody else works in here.
        (self.clone / ".git" / "index.lock").unlink(missing_ok=True)
        for name, value in SETTINGS.items():
            repository.run("config", name, value)
        repository.run("checkout", "--quiet", "--force", "-B", BRANCH, state.tip)
        repository.run("clean", "--quiet", "-ffdx")
        repository.run("cherry-pick", "--no-commit", change, accepted=(0, 1))
        prepared = msgspec.structs.replace(state, prepared=True, left=snapshot(self.clone).tree)
        self.save(prepared)
        return prepared

    def holds_work(self, state: BumpState) -> bool:
        """Whether somebody resolved a conflict, or began to."""
        if any(line.outcome in ("resolved", "dropped") for line in state.done):
            return True
        if not state.prepared:
            return False
        return self.repository.resolve("HEAD^{commit}") != state.tip or snapshot(self.clone).tree != state.left

    def resolution(self, state: BumpState, step: Step) -> Tip:
        """The commit that a person made of the conflict, or what they staged as one.

        Raises:
            PatchError: it is not finished, empty, or there is more than one commit.
        """
        repository, head = self.repository, self.repository.resolve("HEAD^{commit}")
        if unmerged := repository.run("diff", "--name-only", "--diff-filter=U", "-z"):
            self._refuse("these files are not resolved yet", unmerged.decode("utf-8", "backslashreplace").replace("\0", "\n"))
        tree = repository.text("write-tree")
        if found := differences(repository, tree, snapshot(self.clone)):
            self._refuse("these files are not staged: git add them, or remove them", name_some(found))
        before = repository.text("rev-parse", f"{state.tip}^{{tree}}")
        changed = repository.run("diff-tree", "-r", "--name-only", "--diff-filter=d", "-z", before, tree).split(b"\0")[:-1]
        marked = [path.decode("utf-8", "backslashreplace") for path in changed if self._is_marked(repository, tree, path)]
        if marked:
            self._refuse("these files still hold conflict markers", "\n".join(marked))
        if tree == before:
            self._refuse("nothing is left of the patch; dgrctl patch bump --drop leaves it out", step.name)
        if head == state.tip:
            return Tip(commit(repository, state.tip, tree, step.patch.message), tree)
        if head is None or repository.resolve(f"{head}^{{tree}}") != tree or repository.resolve(f"{head}^") != state.tip:
            self._refuse(
                "commit the resolution as one commit, or only stage it", f"HEAD is {head}, expected one commit on {state.tip}"
            )
        return Tip(str(head), tree)

    @staticmethod
    def _is_marked(repository: Repository, tree: str, path: bytes) -> bool:
        content = repository.run("cat-file", "blob", f"{tree}:{path.decode('utf-8', 'surrogateescape')}")
        return content.startswith(_MARKER) or b"\n" + _MARKER in content

    def _refuse(self, what: str, detail: str) -> NoReturn:
        raise PatchError(
            what,
            where=str(self.clone),
            detail=detail.rstrip(),
            remedy="then dgrctl patch bump --continue; dgrctl patch bump --abort gives the bump up",
        )
