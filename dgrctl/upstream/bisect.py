"""``dgrctl patch bump --bisect GOOD..BAD``: the newest commit of a range to which the whole stack applies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dgrctl.console import progress
from dgrctl.errors import InputError, PatchError
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
from dgrctl.upstream import fetch, stack
from dgrctl.upstream.attempt import Step
from dgrctl.upstream.bump import LOCK, lines_of
from dgrctl.upstream.bump_folder import BumpFolder
from dgrctl.upstream.bump_report import BisectReport
from dgrctl.upstream.git import Repository
from dgrctl.upstream.rehearsal import Rehearsed, rehearse, steps_at_pin
from dgrctl.upstream.series import load_series
from dgrctl.upstream.target import Brought, bring_target, has_history, resolve_name


def bisect(layout: Layout, commits: str, *, transport: str | None = None, source: Path | None = None) -> BisectReport:
    """Halves the first-parent history between two commits, the older of which the stack applies to.

    Args:
        commits: ``GOOD..BAD``, each a commit, tag or branch.
        transport, source: See :func:`dgrctl.upstream.target.bring_target`.

    Raises:
        InputError: not a range, or one without commits.
        PatchError: the stack does not apply to GOOD; or a bump is under way.
        FetchError: the commits cannot be brought, or the history between them is not there.
    """
    older, separator, newer = commits.partition("..")
    if not separator or not older or not newer or newer.startswith("."):
        raise InputError("this is not a range of commits", where=f"--bisect {commits}", remedy="--bisect GOOD..BAD")
    with state_lock(layout, LOCK):
        folder = BumpFolder(layout)
        if folder.load() is not None:
            raise PatchError("a bump is under way", where=str(folder.path), remedy="finish it, or dgrctl patch bump --abort")
        with stack.workspace_locked(layout) as manifest:
            series = load_series(layout, manifest)
        named = [(locked.name, patch) for locked, patch in zip(series.lock.patches, series.patches, strict=True)]
        with state_lock(layout, fetch.LOCK, shared=True):
            fetch.verify_pristine_locked(layout, manifest)
            folder.start()
            try:
                brought = bring_target(layout, manifest, folder.clone, to=newer, transport=transport, source=source)
                clone, target = brought.repository, brought.target
                good = _ancestor(brought, older)
                search = _Search(folder.repository, steps_at_pin(folder.repository, manifest.commit, named))
                history = clone.text("rev-list", "--first-parent", "--reverse", f"{good}..{target.commit}").split()
                compatible, incompatible = search.run([good, *history])
                shown = incompatible or compatible
                return BisectReport(
                    pin=manifest.commit,
                    good=good,
                    bad=target.commit,
                    commits=len(history),
                    tried=len(search.known),
                    compatible=compatible,
                    incompatible=incompatible,
                    patches=lines_of(folder.repository, manifest, shown, search.known[shown]),
                    next_commands=(f"dgrctl patch bump --to {compatible}" + (f" --from {source}" if source else ""),),
                )
            finally:
                folder.clear()


def _ancestor(brought: Brought, older: str) -> str:
    newer = brought.target.commit
    good = resolve_name(brought.repository, brought.server, older)
    if good is None or not has_history(brought.repository, good, newer):
        raise InputError(
            f"the history from {older} to {newer} is not there",
            where="--bisect",
            remedy="--from CLONE takes a clone with history; GOOD must be older than BAD",
        )
    if good == newer:
        raise InputError("there is no commit between the two", where="--bisect", remedy="--bisect GOOD..BAD")
    return good


class _Search:
    """Remembers what was tried, by commit."""

    def __init__(self, repository: Repository, steps: Sequence[Step]) -> None:
        self._repository = repository
        self._steps = steps
        self.known: dict[str, list[Rehearsed]] = {}

    def run(self, commits: Sequence[str]) -> tuple[str, str | None]:
        """The last of ``commits`` that the stack applies to, if it stops applying once; and the one after it."""
        with progress(f"Bisecting {len(commits) - 1} commit(s)"):
            if not self._applies(commits[0]):
                failed = [f"{each.step.name}: {each.trial.outcome}" for each in self.known[commits[0]] if each.cause]
                raise PatchError(
                    f"the stack does not apply to {commits[0]} either",
                    where="--bisect",
                    detail="\n".join(failed),
                    remedy="name an older commit, such as the pin, for GOOD",
                )
            if self._applies(commits[-1]):
                return commits[-1], None
            low, high = 0, len(commits) - 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._applies(commits[middle]) else (low, middle)
            return commits[low], commits[high]

    def _applies(self, commit: str) -> bool:
        if commit not in self.known:
            tree = self._repository.text("rev-parse", f"{commit}^{{tree}}")
            self.known[commit] = rehearse(self._repository, self._steps, tree)
        return all(each.cause is None for each in self.known[commit])
