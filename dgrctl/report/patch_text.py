"""The patch stack as people read it."""

from __future__ import annotations

from dgrctl.upstream.lint import LintReport
from dgrctl.upstream.series import Lines
from dgrctl.upstream.stack import PatchStatus

# Architectures that are told one by one; of more than that, the largest stand for all.
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
