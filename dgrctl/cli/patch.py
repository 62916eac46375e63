"""``dgrctl patch``: applies the patch stack, tells its state, exports it."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import msgspec

from dgrctl.layout import Layout
from dgrctl.report.console import emit_json, note
from dgrctl.upstream.export import export
from dgrctl.upstream.series import Lines
from dgrctl.upstream.stack import PatchStatus, apply, status


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``patch`` and its actions; ``patch`` alone applies."""
    parser = commands.add_parser("patch", help="apply the patch stack to the fetched llama.cpp")
    parser.set_defaults(run=_apply, force=False)
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")

    applying = actions.add_parser("apply", help="make the workspace hold the pin with the stack applied (the default)")
    applying.add_argument("--force", action="store_true", help="make it anew, discarding every change in the workspace")
    applying.set_defaults(run=_apply)

    telling = actions.add_parser("status", help="tell pin, digest, applied or not, changed files, drift and size")
    telling.set_defaults(run=_status)

    exporting = actions.add_parser("export", help="write the workspace's commits as patch files and lock")
    exporting.set_defaults(run=_export)

    for action in (applying, telling, exporting):
        # No default here: it would undo a --json that stands before the action.
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the result as JSON on stdout")


def _apply(layout: Layout, arguments: argparse.Namespace) -> int:
    result = apply(layout, force=arguments.force)
    if arguments.json:
        emit_json(_document(result))
    if result.changed:
        note(f"applied {len(result.patches)} patch(es): HEAD {result.head}, tree {result.tree}, every byte proven")
    else:
        note(f"nothing to do: {len(result.patches)} patch(es) applied, HEAD {result.head}, every byte proven")
    return 0


def _status(layout: Layout, arguments: argparse.Namespace) -> int:
    result = status(layout)
    if arguments.json:
        emit_json(_document(result))
    else:
        print("\n".join(_lines(result)))
    return 0


def _export(layout: Layout, arguments: argparse.Namespace) -> int:
    result = export(layout)
    if arguments.json:
        emit_json({"written": result.written, "removed": result.removed, "lock": msgspec.to_builtins(result.lock)})
    for name in result.written:
        note(f"wrote   {layout.patches / name}")
    for name in result.removed:
        note(f"removed {layout.patches / name}")
    if not result.written and not result.removed:
        note("nothing to do: the patches are what the workspace's commits give")
    note(f"stack {result.lock.stack_digest}; changed lines: {_size(result.lock.lines)}")
    return 0


def _document(result: PatchStatus) -> dict[str, object]:
    return asdict(result) | {"lines": msgspec.to_builtins(result.lines)}


def _size(lines: Lines) -> str:
    counts = {"core": lines.core} | lines.architectures
    return ", ".join(f"{owner} {count.changed} of {count.budget}" for owner, count in counts.items())


def _lines(result: PatchStatus) -> list[str]:
    lines = [
        f"pin      {result.pin}",
        f"stack    {result.stack_digest}",
        f"tree     {result.tree}",
        f"head     {result.head}",
        f"applied  {'yes' if result.applied else 'no'}",
        f"lines    {_size(result.lines)}",
        f"patches  {len(result.patches)}",
    ]
    lines += [f"  {name}" for name in result.patches]
    lines += [f"dirty    {path}" for path in result.dirty]
    lines += [f"drift    {text}" for text in result.drift]
    return lines
