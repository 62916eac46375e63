"""``dgrctl patch``: the patch stack: applied, taken off, looked at, edited and exported."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import msgspec

from dgrctl.console import emit_json, note
from dgrctl.errors import PatchError, UsageError
from dgrctl.layout import Layout
from dgrctl.report.patch_text import (
    BUMP_HEADINGS,
    bisect_notes,
    bump_notes,
    bump_rows,
    lint_lines,
    size_text,
    status_lines,
)
from dgrctl.report.table import print_table
from dgrctl.upstream.bisect import bisect
from dgrctl.upstream.bump import abort, bump, exit_code, resume
from dgrctl.upstream.export import export
from dgrctl.upstream.lint import lint
from dgrctl.upstream.shell import shell
from dgrctl.upstream.stack import PatchStatus, apply, status, unapply


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``patch`` and its actions; ``patch`` alone applies."""
    parser = commands.add_parser("patch", help="the patch stack: apply, edit, export, check and bump it", allow_abbrev=False)
    parser.set_defaults(run=_apply, force=False)
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")

    applying = _action(actions, "apply", "make the workspace hold the pin with the stack applied (the default)")
    applying.add_argument("--force", action="store_true", help="make it anew, discarding every change in the workspace")
    applying.set_defaults(run=_apply)

    removing = _action(actions, "unapply", "make the workspace hold the pin alone")
    removing.add_argument("--force", action="store_true", help="discard every change in the workspace")
    removing.set_defaults(run=_unapply)

    _action(actions, "status", "tell pin, digest, applied or not, changed files, drift and size").set_defaults(run=_status)
    _action(actions, "lint", "check numbers, headers, ownership, white space and size of the patches").set_defaults(run=_lint)

    _action(actions, "record", "prove the applied stack and sign what it is").set_defaults(run=_record)

    bumping = _action(actions, "bump", "try the stack on another upstream; move the pin to it with --commit")
    how = bumping.add_mutually_exclusive_group(required=True)
    how.add_argument("--to", metavar="REF", help="commit, tag or branch")
    how.add_argument("--bisect", metavar="GOOD..BAD", help="find the newest commit of this range that the stack applies to")
    how.add_argument("--continue", dest="resume", action="store_true", help="go on with the conflict resolved")
    how.add_argument("--drop", action="store_true", help="go on without the patch that conflicts")
    how.add_argument("--abort", action="store_true", help="give the bump up; nothing was changed")
    bumping.add_argument("--transport", metavar="NAME", help="of the manifest: git (default) or sdist")
    bumping.add_argument("--from", dest="source", type=Path, metavar="PATH", help="a bundle, clone, or source package instead")
    bumping.add_argument("--commit", action="store_true", help="write pin, patches and lock if nothing is wrong")
    bumping.add_argument("--no-build", action="store_true", help="neither build the result nor compare it with the reference")
    bumping.add_argument("--recipe", help="what to compare with (default: two stages of the small model)")
    bumping.add_argument("--storage", metavar="FOLDER", help="model storage (default: DGR_STORAGE, else .dgr/models)")
    bumping.set_defaults(run=_bump)

    working = _action(actions, "shell", "open a shell in the workspace, or run a command there")
    working.add_argument("words", nargs="*", metavar="-- COMMAND", help="what to run (default: your shell)")
    working.set_defaults(run=_shell)

    exporting = _action(actions, "export", "write the workspace's commits as patch files and lock")
    exporting.add_argument("--force", action="store_true", help="also over patches that changed since the workspace was made")
    exporting.set_defaults(run=_export)


def _action(actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, allow_abbrev=False)
    # No default here: it would undo a --json that stands before the action.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the result as JSON on stdout")
    return parser


def _apply(layout: Layout, arguments: argparse.Namespace) -> int:
    result = apply(layout, force=arguments.force)
    if arguments.json:
        emit_json(_document(result))
    if result.changed:
        note(f"applied {len(result.patches)} patch(es): HEAD {result.head}, tree {result.tree}, every byte proven")
    else:
        note(f"nothing to do: {len(result.patches)} patch(es) applied, HEAD {result.head}, every byte proven")
    return 0


def _unapply(layout: Layout, arguments: argparse.Namespace) -> int:
    result = unapply(layout, force=arguments.force)
    if arguments.json:
        emit_json(_document(result))
    if result.changed:
        note(f"took {len(result.patches)} patch(es) off; the workspace holds the pin {result.pin}")
    else:
        note("nothing to do: no patch is applied")
    return 0


def _status(layout: Layout, arguments: argparse.Namespace) -> int:
    result = status(layout)
    if arguments.json:
        emit_json(_document(result))
    else:
        print("\n".join(status_lines(result)))
    return 0


def _lint(layout: Layout, arguments: argparse.Namespace) -> int:
    report = lint(layout)
    if arguments.json:
        emit_json(asdict(report) | {"lines": msgspec.to_builtins(report.lines)})
    else:
        print("\n".join(lint_lines(report)))
    return PatchError.exit_code if report.findings else 0


def _shell(layout: Layout, arguments: argparse.Namespace) -> int:
    note(f"in {layout.workspace}: one commit is one patch; dgrctl patch export writes them")
    result = shell(layout, arguments.words, quiet=arguments.json)
    if arguments.json:
        emit_json(asdict(result))
    if result.dirty:
        note(f"{len(result.dirty)} file(s) are not committed; commit them, then: dgrctl patch export")
    elif not result.exported:
        note("the commits differ from the patches; next: dgrctl patch export")
    # Of one's own shell, only that it ended counts.
    return result.exit_code if arguments.words else 0


def _export(layout: Layout, arguments: argparse.Namespace) -> int:
    result = export(layout, force=arguments.force)
    if arguments.json:
        emit_json({"written": result.written, "removed": result.removed, "lock": msgspec.to_builtins(result.lock)})
    for name in result.written:
        note(f"wrote   {layout.patches / name}")
    for name in result.removed:
        note(f"removed {layout.patches / name}")
    if not result.written and not result.removed:
        note("nothing to do: the patches are what the workspace's commits give")
    note(f"stack {result.lock.stack_digest}; changed lines: {size_text(result.lock.lines)}")
    return 0


def _record(layout: Layout, arguments: argparse.Namespace) -> int:
    # Loaded here: no other action of the group signs anything.
    from dgrctl.evidence.keys import signing_key  # noqa: PLC0415 - cryptography is slow to load and only needed here
    from dgrctl.evidence.stack_record import materials, record_stack  # noqa: PLC0415 - as above

    result = record_stack(layout, signing_key(layout))
    if arguments.json:
        record = msgspec.to_builtins(result.record)
        emit_json({"file": str(result.path), "sha256": result.sha256, "record": record, "materials": materials(result.record)})
    note(f"{'signed' if result.written else 'nothing to do: signed already'}: {result.path}, SHA-256 {result.sha256}")
    return 0


def _bump(layout: Layout, arguments: argparse.Namespace) -> int:
    if arguments.commit and (arguments.abort or arguments.bisect):
        raise UsageError(
            "nothing is committed by this", where="--commit", remedy="--commit goes with --to, --continue and --drop"
        )
    if (arguments.transport or arguments.source) and (arguments.abort or arguments.resume or arguments.drop):
        raise UsageError("the bump under way has its target already", where="--transport, --from", remedy="leave them away")
    if arguments.abort:
        there = abort(layout)
        note("the bump was given up; nothing outside .dgr/bump had changed" if there else "nothing to do: no bump is under way")
        if arguments.json:
            emit_json({"aborted": there})
        return 0
    if arguments.bisect is not None:
        return _bisect(layout, arguments)
    prove = None
    if not arguments.no_build:
        # Loaded here: nothing else in this group runs a model.
        from dgrctl.certify.smoke import prover  # noqa: PLC0415 - numpy and gRPC are slow to load; --no-build needs neither

        prove = prover(layout, recipe=arguments.recipe, storage=arguments.storage)
    if arguments.to is not None:
        report = bump(
            layout,
            to=arguments.to,
            transport=arguments.transport,
            source=arguments.source,
            commit=arguments.commit,
            prove=prove,
        )
    else:
        report = resume(layout, drop=arguments.drop, commit=arguments.commit, prove=prove)
    if arguments.json:
        emit_json(msgspec.to_builtins(report))
    else:
        print_table(BUMP_HEADINGS, bump_rows(report.patches))
    for line in bump_notes(report):
        note(line)
    return exit_code(report)


def _bisect(layout: Layout, arguments: argparse.Namespace) -> int:
    report = bisect(layout, arguments.bisect, transport=arguments.transport, source=arguments.source)
    if arguments.json:
        emit_json(msgspec.to_builtins(report))
    else:
        print_table(BUMP_HEADINGS, bump_rows(report.patches))
    for line in bisect_notes(report):
        note(line)
    return 0


def _document(result: PatchStatus) -> dict[str, object]:
    return asdict(result) | {"lines": msgspec.to_builtins(result.lines)}
