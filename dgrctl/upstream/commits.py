"""Patches to commits, strictly and the same everywhere; and back.

Applying needs no work tree: a temporary index takes each patch, and every blob that comes out must be the one that the patch's
own ``index`` line names. So there is no fuzz, no offset that passes for a match, and no three-way merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgrctl.errors import PatchError
from dgrctl.upstream.git import Repository
from dgrctl.upstream.patchfile import AUTHOR_EMAIL, AUTHOR_NAME, COMMIT_DATE, Patch, normalize_message

# The exact form of every exported diff, whatever a user's own git would do.
_DIFF = (
    *("diff-tree", "-p", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-relative"),
)

_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", AUTHOR_NAME), ("EMAIL", AUTHOR_EMAIL), ("DATE", COMMIT_DATE))
}


@dataclass(frozen=True)
class Tip:
    """Where a chain of commits ends: the commit and its tree."""

    head: str
    tree: str


def commit_patches(repository: Repository, pin: str, patches: Sequence[tuple[str, Patch]]) -> Tip:
    """Makes one commit per patch on top of ``pin``; touches neither HEAD, index nor work tree.

    Args:
        patches: (name for messages, patch) in the order applied.

    Raises:
        PatchError: a patch does not apply exactly; names it.
    """
    return commit_each(repository, pin, patches)[-1]


def commit_each(repository: Repository, pin: str, patches: Sequence[tuple[str, Patch]]) -> list[Tip]:
    """Like :func:`commit_patches`; returns the pin and what every patch gives."""
    with repository.objects_alone(pin) as objects:
        tips = [Tip(pin, objects.text("rev-parse", f"{pin}^{{tree}}"))]
        objects.run("read-tree", pin)
        for name, patch in patches:
            tree = _apply_one(objects, tips[-1].tree, name, patch)
            tips.append(Tip(commit(objects, tips[-1].head, tree, patch.message), tree))
    return tips


def commit(repository: Repository, parent: str | None, tree: str, message: str) -> str:
    """A commit whose id depends on nothing but its arguments; returns the id."""
    parents = () if parent is None else ("-p", parent)
    return repository.text("commit-tree", tree, *parents, stdin=message.encode(), environment=_IDENTITY)


def _apply_one(repository: Repository, before: str, name: str, patch: Patch) -> str:
    """Applies a patch to the index; returns the resulting tree."""
    try:
        repository.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch.diff)
        tree = repository.text("write-tree")
    except PatchError as error:
        raise PatchError(
            "this patch does not apply at the pin", where=name, detail=error.detail, remedy="dgrctl patch export writes it anew"
        ) from error
    if _blobs(repository, before, tree) != {change.path: change.blobs for change in patch.changes()}:
        raise PatchError(
            "this patch applies, but not exactly where and to what it says",
            where=name,
            remedy="dgrctl patch export writes it anew",
        )
    return tree


def _blobs(repository: Repository, before: str, after: str) -> dict[str, tuple[str, str]]:
    """The files that differ between two trees, each with its blob ids before and after (zeros: no such file)."""
    fields = repository.run("diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", before, after).split(b"\0")
    result = {}
    for head, path in zip(fields[0:-1:2], fields[1::2], strict=True):
        _mode_before, _mode_after, blob_before, blob_after, _how = head.decode().removeprefix(":").split(" ")
        result[path.decode("utf-8", "backslashreplace")] = (blob_before, blob_after)
    return result


def diff_of(repository: Repository, before: str, after: str) -> bytes:
    """The diff between two trees in the one form that patches have."""
    return repository.run(*_DIFF, before, after)


def read_commits(repository: Repository, pin: str, head: str) -> list[tuple[Patch, str]]:
    """The commits after ``pin`` up to ``head`` as patches, oldest first, each with its resulting tree.

    Raises:
        PatchError: ``head`` does not descend from ``pin`` in a straight line, a commit is empty or binary, or its message is
            not UTF-8.
    """
    with repository.objects_alone(pin) as objects:
        return _read_line(objects, pin, head, str(repository.folder))


def _read_line(repository: Repository, pin: str, head: str, where: str) -> list[tuple[Patch, str]]:
    """The commits of a straight line; ``where`` is for messages."""
    listing = repository.text("rev-list", "--reverse", "--topo-order", "--parents", f"{pin}..{head}").splitlines()
    result: list[tuple[Patch, str]] = []
    parent = pin
    for line in listing:
        commit_id, *parents = line.split()
        if parents != [parent]:
            raise PatchError(
                f"commit {commit_id} does not follow {parent}: the stack must be a straight line on top of the pin",
                where=where,
                remedy="git rebase upstream in the workspace straightens it",
            )
        result.append(_read_commit(repository, parent, commit_id, where))
        parent = commit_id
    if parent != head:
        raise PatchError(
            f"HEAD ({head}) does not descend from the pin ({pin})",
            where=where,
            remedy="git rebase upstream in the workspace, or dgrctl patch apply --force to discard what is there",
        )
    return result


def _read_commit(repository: Repository, parent: str, commit_id: str, where: str) -> tuple[Patch, str]:
    try:
        message = repository.run("show", "--no-patch", "--encoding=UTF-8", "--format=%B", commit_id).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PatchError(f"the message of commit {commit_id} is not UTF-8", where=where) from error
    patch = Patch(normalize_message(message), diff_of(repository, parent, commit_id))
    return patch, repository.text("rev-parse", f"{commit_id}^{{tree}}")
