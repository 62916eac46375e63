"""One patch tried on another tree than its own: whether and how its change can be had there.

Nothing is checked out. The kinds of outcome, in the order in which they are looked for:

* ``clean``: every hunk applies at its own lines.
* ``already upstream``: the tree holds the change; taking the patch back is what would apply.
* ``offset``: every hunk applies, some at other lines; no fuzz.
* ``merged three-way``: git merges the change from the pin's blobs without a conflict, also into files that were renamed.
* ``target gone``: it does not, and a file that the patch changes is not there any more.
* ``conflict``: it does not, though all files are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dgrctl.errors import DgrError, PatchError, StorageError, ToolchainError
from dgrctl.upstream.commits import commit, diff_of
from dgrctl.upstream.git import Repository
from dgrctl.upstream.patchfile import Patch

Outcome = Literal["clean", "offset", "merged three-way", "conflict", "already upstream", "target gone"]
FAILURES: frozenset[Outcome] = frozenset({"conflict", "target gone"})


@dataclass(frozen=True)
class Step:
    """A patch as it applies at the pin: file name, the patch, and the tree before and after it."""

    name: str
    patch: Patch
    before: str
    after: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it changes."""
        return tuple(change.path for change in self.patch.changes())


@dataclass(frozen=True)
class Trial:
    """What a step gives on another tree.

    Attributes:
        tree: The tree with the change; None where it cannot be had.
        offset: The most lines by which a hunk moved.
        conflicts: Paths that cannot be merged.
    """

    outcome: Outcome
    tree: str | None
    offset: int = 0
    conflicts: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.outcome in FAILURES


def attempt(repository: Repository, step: Step, onto: str) -> Trial:
    """Tries ``step`` on the tree ``onto``; all its objects and those of the step's trees are in ``repository``."""
    applied = _apply(repository, onto, step.patch.diff)
    offset = _offset(repository, step, onto, applied) if applied is not None else 0
    if applied is not None and offset == 0:
        return Trial("clean", applied)
    if _apply(repository, onto, step.patch.diff, "--reverse") is not None:
        return Trial("already upstream", onto)
    if applied is not None:
        return Trial("offset", applied, offset)
    tree, conflicts = merge_three_way(repository, step, onto)
    if not conflicts:
        return Trial("already upstream", onto) if tree == onto else Trial("merged three-way", tree)
    changed = [change.path for change in step.patch.changes() if change.blobs[0].strip("0")]
    gone = [path for path in changed if path not in _entries(repository, onto, changed)]
    return Trial("target gone" if gone else "conflict", None, conflicts=tuple(dict.fromkeys((*gone, *conflicts))))


def merge_three_way(repository: Repository, step: Step, onto: str) -> tuple[str, tuple[str, ...]]:
    """Merges the step's change into ``onto``; returns the tree (with conflict markers, where there are) and what conflicts."""
    # git from 2.40 on takes the base as an option; Debian 12 has 2.39, which finds it as the common parent.
    base = commit(repository, None, step.before, "base")
    ours, theirs = (commit(repository, base, tree, "side") for tree in (onto, step.after))
    answer = repository.run("merge-tree", "--write-tree", "--name-only", "-z", ours, theirs, accepted=(0, 1)).split(b"\0")
    end = answer.index(b"", 1)
    return answer[0].decode(), tuple(dict.fromkeys(path.decode("utf-8", "backslashreplace") for path in answer[1:end]))


def force(repository: Repository, step: Step, onto: str) -> str:
    """The tree ``onto`` with the step's change in it, wherever they contradict each other: what resolving it might give."""
    merged, conflicts = merge_three_way(repository, step, onto)
    paths = [path for path in step.paths if path in conflicts]
    ours, base, theirs = (_entries(repository, tree, paths) for tree in (onto, step.before, step.after))
    lines = []
    with repository.objects_alone() as objects:
        objects.run("read-tree", merged)
        for path in paths:
            if path not in theirs:
                lines.append(f"0 {'0' * 40}\t{path}\0")
                continue
            mode, blob = theirs[path]
            if path in ours and path in base:
                blob = _favouring(objects, ours[path][1], base[path][1], blob)
            lines.append(f"{mode} {blob}\t{path}\0")
        objects.run("update-index", "-z", "--index-info", stdin="".join(lines).encode())
        return objects.text("write-tree")


def _favouring(objects: Repository, ours: str, base: str, theirs: str) -> str:
    """The blob that merging three gives, where they contradict each other with the lines of ``theirs``."""
    files = [objects.folder / name for name in ("ours", "base", "theirs")]
    for file, blob in zip(files, (ours, base, theirs), strict=True):
        file.write_bytes(objects.run("cat-file", "blob", blob))
    merged = objects.run("merge-file", "-p", "--quiet", "--theirs", *map(str, files))
    return objects.text("hash-object", "-w", "--stdin", stdin=merged)


def _apply(repository: Repository, onto: str, diff: bytes, *options: str) -> str | None:
    """The tree after ``diff``, at whatever lines; None if it does not apply."""
    with repository.objects_alone() as objects:
        objects.run("read-tree", onto)
        try:
            objects.run("apply", "--cached", "--whitespace=nowarn", *options, "-", stdin=diff)
        except (StorageError, ToolchainError):
            raise
        except DgrError:
            return None
        return objects.text("write-tree")


def _offset(repository: Repository, step: Step, onto: str, applied: str) -> int:
    """The most lines by which a hunk of the step moved on its way to ``applied``; at least 1 if they cannot be matched."""
    try:
        with repository.objects_alone() as objects:
            found = Patch(step.patch.message, diff_of(objects, onto, applied)).hunks()
    except PatchError:
        return 1
    wanted = step.patch.hunks()
    if [hunk.path for hunk in found] != [hunk.path for hunk in wanted]:
        return 1
    return max((abs(one.old - other.old) for one, other in zip(found, wanted, strict=True)), default=0)


def _entries(repository: Repository, tree: str, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Mode and blob by path, of those of ``paths`` that are files of a tree."""
    found: dict[str, tuple[str, str]] = {}
    if not paths:
        return found
    for line in repository.run("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths).split(b"\0")[:-1]:
        head, path = line.split(b"\t", 1)
        mode, _kind, blob = head.decode().split(" ")
        found[path.decode("utf-8", "backslashreplace")] = (mode, blob)
    return found
