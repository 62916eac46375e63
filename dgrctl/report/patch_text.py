"""The patch stack as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from dgrctl.upstream.bump_report import NAMED_COMMITS, BisectReport, BumpReport, PatchLine
from dgrctl.upstream.lint import LintReport
from dgrctl.upstream.series import Lines
from dgrctl.upstream.stack import PatchStatus

# Architectures and files that are told one by one; --json tells all.
_TOLD = 4


def size_text(lines: Lines) -> str:
    """Changed lines of budget: the core's, and the architectures' with the largest first."""
    told = [f"core {lines.core.changed} of {lines.core.budget}"]
    counts = sorted(lines.architectures.items(), key=lambda item: (-item[1].changed, item[0]))
    told += [f"{name} {count.changed} of {count.budget}" for name, count in counts[:_TOLD]]
    if len(counts) > _TOLD:
        rest = [count.changed for _, count in counts[_TOLD:]]
        told.append(f"{len(rest)} more architectures, each at most {max(rest)}")
    return ", ".join(told)


def status_lines(result: PatchStatus) -> list[str]:
    """``dgrctl patch status``."""
    lines = [
        f"pin      {result.pin}",
        f"stack    {result.stack_digest}",
        f"tree     {result.tree}",
        f"head     {result.head}",
        f"applied  {'yes' if result.applied else 'no'}",
        f"lines    {size_text(result.lines)}",
        f"patches  {len(result.patches)}",
    ]
    lines += [f"  {name}" for name in result.patches]
    lines += [f"dirty    {path}" for path in result.dirty]
    lines += [f"drift    {text}" for text in result.drift]
    return lines


def lint_lines(report: LintReport) -> list[str]:
    """``dgrctl patch lint``: every finding, then the size."""
    found = f"{len(report.findings)} finding(s)" if report.findings else "nothing to find fault with"
    return [*map(str, report.findings), f"{len(report.patches)} patch(es), {found}", f"changed lines: {size_text(report.lines)}"]


BUMP_HEADINGS = ("PATCH", "OUTCOME", "CAUSE", "UPSTREAM COMMITS", "DETAIL")


def bump_rows(patches: Sequence[PatchLine]) -> list[tuple[str, ...]]:
    """One row a patch, under :data:`BUMP_HEADINGS`."""
    return [
        (line.name.removesuffix(".patch"), line.outcome, line.cause or "-", _touched(line), _detail(line)) for line in patches
    ]


def bump_notes(report: BumpReport) -> list[str]:
    """What there is to say about a bump beside its table."""
    target, fine = report.target, "applies" if report.applies else "does not apply"
    notes = [f"the stack {fine} to {target.commit}, version {target.version}, from {target.source}"]
    notes += [
        f"{line.name}: {each.commit[:12]} {each.subject}" for line in report.patches for each in line.upstream_commits or ()
    ]
    if not report.history:
        notes.append("no history between the pin and that commit is here, so no upstream commits are named")
    if report.lock is not None:
        notes.append(f"changed lines there: {size_text(report.lock.lines)}")
    notes += [f"over the budget: {problem}" for problem in report.problems]
    if report.proof is not None:
        notes.append(f"{'proven' if report.proof.passed else 'NOT proven'}: {report.proof.text}")
    if report.committed:
        notes.append("pin, patches and lock were written")
        notes.append("the worker allows no architecture until the roster is of them: dgrctl build, arch certify, build again")
    if report.worktree is not None:
        notes.append(f"resolve the conflict in {report.worktree} and git add what you changed")
    return notes + [f"next: {command}" for command in report.next_commands]


def bisect_notes(report: BisectReport) -> list[str]:
    """What a bisection found."""
    notes = [f"newest commit that the stack applies to: {report.compatible} ({report.tried} of {report.commits + 1} tried)"]
    if report.incompatible is None:
        notes.append("that is the end of the range")
    else:
        notes.append(f"the next one, {report.incompatible}, breaks it: see the table")
    return notes + [f"next: {command}" for command in report.next_commands]


def _touched(line: PatchLine) -> str:
    if line.upstream_commits is None:
        return "?"
    count = len(line.upstream_commits)
    return f"{count} or more" if count == NAMED_COMMITS else f"{count}"


def _detail(line: PatchLine) -> str:
    if line.conflicts:
        because = f"because of {', '.join(name[:4] for name in line.follows)}: " if line.follows else ""
        more = f" and {len(line.conflicts) - _TOLD} more" if len(line.conflicts) > _TOLD else ""
        return f"{because}{', '.join(line.conflicts[:_TOLD])}{more}"
    return f"by up to {line.offset} lines" if line.outcome == "offset" else "-"
