"""``dgrctl patch bump``: the stack on another upstream, rehearsed in a throw-away clone, and taken only when all of it holds.

What is taken was a whole checkout before: manifest, patches and lock are written to ``.dgr/bump/candidate/``, fetched, applied
and proven there as anywhere else, and built and compared by whoever calls. Only then do the three change here, as one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dgrctl.errors import BuildError, DgrError, PatchError, StorageError
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
from dgrctl.upstream import fetch, stack
from dgrctl.upstream.attempt import Step
from dgrctl.upstream.bump_candidate import Candidate, commit_candidate, make_candidate
from dgrctl.upstream.bump_folder import BumpFolder
from dgrctl.upstream.bump_report import NAMED_COMMITS, BumpReport, BumpState, PatchLine, Proof, UpstreamCommit
from dgrctl.upstream.commits import commit
from dgrctl.upstream.git import Repository
from dgrctl.upstream.manifest import UpstreamManifest
from dgrctl.upstream.rehearsal import Rehearsed, rehearse, steps_at_pin
from dgrctl.upstream.series import Series, load_series
from dgrctl.upstream.target import bring_target, has_history
from dgrctl.upstream.workspace import inspect

LOCK = "bump"

Prove = Callable[[Layout], Proof]
"""Builds a checkout and compares it with its own untouched upstream. A DgrError is a proof that failed."""

_CONTINUE, _DROP, _ABORT = (f"dgrctl patch bump --{word}" for word in ("continue", "drop", "abort"))


@dataclass(frozen=True)
class _Work:
    """What every step of a bump needs."""

    layout: Layout
    folder: BumpFolder
    manifest: UpstreamManifest
    series: Series
    steps: Sequence[Step]

    @property
    def repository(self) -> Repository:
        return self.folder.repository


def bump(
    layout: Layout,
    *,
    to: str,
    transport: str | None = None,
    source: Path | None = None,
    commit: bool = False,
    prove: Prove | None = None,
) -> BumpReport:
    """Rehearses the stack on another upstream. Nothing outside ``.dgr/bump/`` changes, unless all holds and ``commit`` is asked.

    Args:
        to, transport, source: See :func:`dgrctl.upstream.target.bring_target`.
        commit: Write pin, patches and lock if every patch applies and nothing else is wrong.
        prove: Tried on the candidate if every patch applies; None: nothing is built.

    Raises:
        PatchError: the patches here are not right; or a former bump waits with somebody's work in it.
        FetchError, IntegrityError: the pin is not here, or the target cannot be brought.
        StorageError: the disk is full or read-only.
    """
    with state_lock(layout, LOCK):
        folder = BumpFolder(layout)
        manifest, series = _stack(layout)
        _refuse_to_forget(folder, series)
        if commit:
            _refuse_work(layout)
        with state_lock(layout, fetch.LOCK, shared=True), _swept(folder):
            fetch.verify_pristine_locked(layout, manifest)
            folder.start()
            target = bring_target(layout, manifest, folder.clone, to=to, transport=transport, source=source).target
            work = _work(layout, folder, manifest, series)
            state = BumpState(
                schema=1,
                pin=manifest.commit,
                stack_digest=series.lock.stack_digest,
                target=target,
                done=(),
                tip=target.commit,
            )
            options = f" --transport {transport}" if transport else f" --from {source}" if source else ""
            return _go_on(work, state, f"dgrctl patch bump --to {to}{options} --commit", commit=commit, prove=prove)


def resume(layout: Layout, *, drop: bool = False, commit: bool = False, prove: Prove | None = None) -> BumpReport:
    """Takes what a person made of the conflict (``drop``: leaves the patch out) and goes on.

    Raises:
        PatchError: no bump is under way, the conflict is not resolved, or the patches changed since the bump began.
        FetchError, IntegrityError, StorageError: as :func:`bump`.
    """
    with state_lock(layout, LOCK):
        folder = BumpFolder(layout)
        manifest, series = _stack(layout)
        state = _under_way(folder, series)
        if commit:
            _refuse_work(layout)
        with state_lock(layout, fetch.LOCK, shared=True):
            fetch.verify_pristine_locked(layout, manifest)
            work = _work(layout, folder, manifest, series)
            # Otherwise a kill came after the last resolution, and what it left undone is done now.
            if state.prepared:
                state = _resolved(work, state, drop=drop)
                folder.save(state)
            report = _go_on(work, state, f"{_CONTINUE} --commit", commit=commit, prove=prove)
        if report.committed:
            folder.clear()
        return report


def abort(layout: Layout) -> bool:
    """Gives the bump up; returns whether there was one. Nothing outside its own folder had changed."""
    with state_lock(layout, LOCK):
        return BumpFolder(layout).clear()


def exit_code(report: BumpReport) -> int:
    """0 if the stack can be had on the target; otherwise the code of what is in its way."""
    if not report.applies or report.problems:
        return PatchError.exit_code
    return 0 if report.proof is None or report.proof.passed else BuildError.exit_code


def lines_of(
    repository: Repository, manifest: UpstreamManifest, target: str, results: Sequence[Rehearsed]
) -> tuple[PatchLine, ...]:
    """A rehearsal's results with the upstream commits that touched each patch's files, where there is history."""
    history = has_history(repository, manifest.commit, target)
    return tuple(
        PatchLine.of(each, _touching(repository, manifest.commit, target, each.step.paths) if history else None)
        for each in results
    )


@contextlib.contextmanager
def _swept(folder: BumpFolder) -> Iterator[None]:
    """Removes what a bump made, however it ends, unless a conflict waits in it."""
    try:
        yield
    finally:
        if not folder.is_waiting:
            folder.clear()


def _stack(layout: Layout) -> tuple[UpstreamManifest, Series]:
    with stack.workspace_locked(layout) as manifest:
        return manifest, load_series(layout, manifest)


def _work(layout: Layout, folder: BumpFolder, manifest: UpstreamManifest, series: Series) -> _Work:
    named = [(locked.name, patch) for locked, patch in zip(series.lock.patches, series.patches, strict=True)]
    return _Work(layout, folder, manifest, series, steps_at_pin(folder.repository, manifest.commit, named))


def _refuse_to_forget(folder: BumpFolder, series: Series) -> None:
    """A former bump may only be replaced if nobody worked on its conflict, or if it was taken."""
    state = folder.load()
    if state is None or _was_taken(state, series) or not folder.holds_work(state):
        return
    raise PatchError(
        f"a bump to {state.target.commit} is under way, with work of yours in it",
        where=str(folder.clone),
        remedy=f"{_CONTINUE} goes on with it, {_ABORT} gives it up",
    )


def _was_taken(state: BumpState, series: Series) -> bool:
    """Whether a bump was committed and only its folder was left, by a kill."""
    return (series.lock.pin, series.lock.head) == (state.target.commit, state.tip)


def _under_way(folder: BumpFolder, series: Series) -> BumpState:
    state = folder.load()
    if state is not None and _was_taken(state, series):
        folder.clear()
        state = None
    if state is None:
        raise PatchError("no bump is under way", where=str(folder.path), remedy="dgrctl patch bump --to REF begins one")
    if state.stack_digest != series.lock.stack_digest:
        raise PatchError(
            "the patches changed since the bump began",
            where=str(folder.path),
            remedy=f"restore them (git checkout -- patches manifests), or {_ABORT} and begin again",
        )
    return state


def _refuse_work(layout: Layout) -> None:
    if inspect(layout).holds_work:
        raise PatchError(
            "the workspace holds work that is in no patch; it could not be exported after the pin moved",
            where=str(layout.workspace),
            remedy="dgrctl patch export takes it into the stack, dgrctl patch apply --force discards it",
        )


def _resolved(work: _Work, state: BumpState, *, drop: bool) -> BumpState:
    """The state with the waiting patch taken as resolved, or left out."""
    step = work.steps[len(state.done)]
    line = PatchLine(name=step.name, outcome="dropped" if drop else "resolved", files=step.paths)
    tip = state.tip if drop else work.folder.resolution(state, step).head
    return msgspec.structs.replace(state, done=(*state.done, line), tip=tip, prepared=False, left=None)


def _go_on(work: _Work, state: BumpState, take: str, *, commit: bool, prove: Prove | None) -> BumpReport:
    """Rehearses what is left, and stops at the first conflict or ends. ``take`` is the command that would write the result."""
    repository, target = work.repository, state.target
    tree = repository.text("rev-parse", f"{state.tip}^{{tree}}")
    results = rehearse(repository, work.steps[len(state.done) :], tree)
    lines = lines_of(repository, work.manifest, target.commit, results)
    report = BumpReport(
        pin=work.manifest.commit,
        target=target,
        patches=(*state.done, *lines),
        applies=all(line.cause is None for line in lines),
        history=has_history(repository, work.manifest.commit, target.commit),
    )
    for result, line in zip(results, lines, strict=True):
        if result.trial.tree is None:
            work.folder.prepare(state, result.step)
            return msgspec.structs.replace(
                report,
                worktree=str(work.folder.clone),
                next_commands=(f"git -C {work.folder.clone} status", _CONTINUE, _DROP, _ABORT),
            )
        state = msgspec.structs.replace(state, done=(*state.done, line), tip=_committed(repository, state, result))
    return _finish(work, state, report, take, commit=commit, prove=prove)


def _committed(repository: Repository, state: BumpState, result: Rehearsed) -> str:
    """The commit of a patch on top of the state's tip; the tip itself, if upstream has the patch already."""
    if result.trial.tree is None or result.trial.outcome == "already upstream":
        return state.tip
    return commit(repository, state.tip, result.trial.tree, result.step.patch.message)


def _finish(work: _Work, state: BumpState, report: BumpReport, take: str, *, commit: bool, prove: Prove | None) -> BumpReport:
    """Makes the candidate, proves it, and takes it if that is asked for and nothing is wrong."""
    candidate = make_candidate(work.layout, work.folder, work.manifest, work.series, state)
    resumed = any(line.outcome in ("resolved", "dropped") for line in state.done)
    if resumed:
        # Of what a person did, nothing may be done twice.
        work.folder.save(msgspec.structs.replace(state, tip=candidate.lock.head))
    report = msgspec.structs.replace(report, lock=candidate.lock, problems=tuple(candidate.lock.lines.over_budget()))
    if not report.problems:
        candidate.check()
        report = msgspec.structs.replace(report, proof=_proof(candidate, prove))
    sound = not report.problems and (report.proof is None or report.proof.passed)
    give_up = (_ABORT,) if resumed else ()
    if not sound:
        return msgspec.structs.replace(report, next_commands=give_up)
    if not commit:
        return msgspec.structs.replace(report, next_commands=(take, *give_up))
    commit_candidate(work.layout, candidate)
    # A package is in the new manifest, for fetch to get it.
    from_path = state.target.package is None and state.target.source != "git"
    bring = f"dgrctl fetch --from {state.target.source}" if from_path else "dgrctl fetch"
    return msgspec.structs.replace(report, committed=True, next_commands=(bring, "dgrctl patch"))


def _proof(candidate: Candidate, prove: Prove | None) -> Proof | None:
    if prove is None:
        return None
    try:
        return prove(candidate.layout)
    except StorageError:
        raise
    except DgrError as error:
        where = f" ({error.where})" if error.where else ""
        remedy = f"; {error.remedy}" if error.remedy else ""
        detail = f"\n{error.detail.rstrip()}" if error.detail else ""
        return Proof(passed=False, text=f"{error.what}{where}{remedy}{detail}")


def _touching(repository: Repository, pin: str, target: str, paths: Sequence[str]) -> tuple[UpstreamCommit, ...]:
    log = ("log", "--no-merges", f"--max-count={NAMED_COMMITS}", "--format=%H %s", f"{pin}..{target}", "--", *paths)
    lines = repository.text(*log).splitlines()
    return tuple(UpstreamCommit(commit=line[:40], subject=line[41:]) for line in lines)
