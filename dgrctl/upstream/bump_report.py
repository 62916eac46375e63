"""What a bump says, and what it remembers while a conflict waits for a person (``.dgr/bump/state.json``)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dgrctl.upstream.attempt import Outcome
from dgrctl.upstream.manifest import ObjectId, Sha256
from dgrctl.upstream.rehearsal import Cause, Rehearsed
from dgrctl.upstream.series import SeriesLock
from dgrctl.upstream.target import Target

# The most upstream commits that are named with a patch, the newest first.
NAMED_COMMITS = 20


class UpstreamCommit(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A commit of upstream's, and the first line of its message."""

    commit: ObjectId
    subject: str


class PatchLine(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One patch on another upstream.

    Attributes:
        outcome: See :mod:`dgrctl.upstream.attempt`; or what a person did about a conflict.
        offset: The most lines by which a hunk moved.
        cause: Of a failure: "first" by itself, "follows" because of the patches in ``follows``.
        files: That the patch changes.
        conflicts: Files in which it cannot be had.
        upstream_commits: That touched ``files`` since the pin, newest first, at most :data:`NAMED_COMMITS`; None where there is
            no history to look at.
    """

    name: str
    outcome: Outcome | Literal["resolved", "dropped"]
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    cause: Cause | None = None
    follows: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    upstream_commits: tuple[UpstreamCommit, ...] | None = None

    @classmethod
    def of(cls, rehearsed: Rehearsed, upstream_commits: tuple[UpstreamCommit, ...] | None) -> PatchLine:
        """What the rehearsal of a patch found."""
        return cls(
            name=rehearsed.step.name,
            outcome=rehearsed.trial.outcome,
            offset=rehearsed.trial.offset,
            cause=rehearsed.cause,
            follows=rehearsed.follows,
            files=rehearsed.step.paths,
            conflicts=rehearsed.trial.conflicts,
            upstream_commits=upstream_commits,
        )


class Proof(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What building the candidate and comparing it with the untouched upstream gave, in a sentence."""

    passed: bool
    text: str


class BumpState(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A bump under way.

    Attributes:
        pin, stack_digest: What it started from.
        done: The patches before the one that waits.
        tip: The commit after the last of them, on top of the target.
        prepared: The work tree holds the conflict, and ``left`` is the tree that it was left as.
    """

    schema: Literal[1]
    pin: ObjectId
    stack_digest: Sha256
    target: Target
    done: tuple[PatchLine, ...]
    tip: ObjectId
    prepared: bool = False
    left: ObjectId | None = None


class BumpReport(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a bump found and did.

    Attributes:
        applies: Every patch can be had on the target.
        history: The commits between pin and target are there.
        lock: The series.lock of the stack on the target; None unless it applies.
        problems: Why it cannot be taken although it applies, in words.
        proof: None where nothing was built.
        committed: Pin, patches and lock were written.
        worktree: Where a conflict waits.
        next_commands: What to run now.
    """

    schema: Literal[1] = 1
    pin: ObjectId
    target: Target
    patches: tuple[PatchLine, ...]
    applies: bool
    history: bool
    lock: SeriesLock | None = None
    problems: tuple[str, ...] = ()
    proof: Proof | None = None
    committed: bool = False
    worktree: str | None = None
    next_commands: tuple[str, ...] = ()


class BisectReport(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The newest commit of a range to which the stack applies.

    Attributes:
        commits: How many the range has, and ``tried`` how many were looked at.
        compatible: The newest that the stack applies to; ``incompatible`` the one after it, None if there is none.
        patches: How the stack fares on ``incompatible``; on ``compatible`` if there is none.
    """

    schema: Literal[1] = 1
    pin: ObjectId
    good: ObjectId
    bad: ObjectId
    commits: int
    tried: int
    compatible: ObjectId
    incompatible: ObjectId | None
    patches: tuple[PatchLine, ...]
    next_commands: tuple[str, ...] = ()
