"""The whole stack tried on another upstream, every patch, past the first that fails.

A patch that cannot be had is either a *first cause*, or *follows* from one: it was made on top of a patch that failed. To tell
them apart two chains are kept. On the one, each failed patch is taken for resolved in its own favour; what fails there fails by
itself. On the other it is left out; what fails only there follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dgrctl.upstream.attempt import Step, Trial, attempt, force
from dgrctl.upstream.commits import commit_each
from dgrctl.upstream.git import Repository
from dgrctl.upstream.patchfile import Patch

Cause = Literal["first", "follows"]


@dataclass(frozen=True)
class Rehearsed:
    """One patch of a rehearsal.

    Attributes:
        cause: Why it failed: by itself ("first"), or because the patches ``follows`` did; None if it did not fail.
    """

    step: Step
    trial: Trial
    cause: Cause | None = None
    follows: tuple[str, ...] = ()


def steps_at_pin(repository: Repository, pin: str, named: Sequence[tuple[str, Patch]]) -> list[Step]:
    """The stack applied strictly at its pin, patch by patch.

    Raises:
        PatchError: a patch does not apply exactly.
    """
    tips = commit_each(repository, pin, named)
    pairs = zip(named, itertools.pairwise(tips), strict=True)
    return [Step(name, patch, before.tree, after.tree) for (name, patch), (before, after) in pairs]


def rehearse(repository: Repository, steps: Sequence[Step], tree: str) -> list[Rehearsed]:
    """Tries every step, one on top of the other, on ``tree``."""
    assumed = actual = tree
    failed: list[Step] = []
    result = []
    for step in steps:
        trial = attempt(repository, step, assumed)
        if trial.tree is None:
            result.append(Rehearsed(step, trial, "first"))
            assumed = force(repository, step, assumed)
            failed.append(step)
            continue
        assumed = trial.tree
        if failed:
            trial = attempt(repository, step, actual)
        if trial.tree is None:
            result.append(Rehearsed(step, trial, "follows", _causes(step, failed)))
            continue
        actual = trial.tree
        result.append(Rehearsed(step, trial))
    return result


def _causes(step: Step, failed: Sequence[Step]) -> tuple[str, ...]:
    """The failed patches that changed a file of ``step``, or all of them."""
    shared = [other.name for other in failed if set(other.paths) & set(step.paths)]
    return tuple(shared or [other.name for other in failed])
