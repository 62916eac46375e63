"""``dgrctl patch``: the patch stack: applied, taken off, looked at, edited and exported."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import File, Force, Json, Storage, Transport, Wide, complete_recipes, exactly_one, examples
from dgrctl.errors import PatchError, UsageError
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from dgrctl.upstream.stack import PatchStatus

app = typer.Typer(
    add_completion=False,
    cls=NearestGroup,
    help="Apply, edit, export, check and bump the patch stack. dgrctl patch alone applies it.",
    invoke_without_command=True,
    epilog=examples("dgrctl patch", "dgrctl patch shell -- git log --oneline", "dgrctl patch export"),
)


@app.callback()
def _patch(ctx: typer.Context, as_json: Json = False) -> int:
    return 0 if ctx.invoked_subcommand else apply(as_json=as_json)


@app.command(epilog=examples("dgrctl patch", "dgrctl patch apply --force"))
def apply(force: Force = False, as_json: Json = False) -> int:
    """Make the workspace hold the pin with the stack applied. This is the default."""
    from dgrctl.console import emit_json, note
    from dgrctl.upstream import stack

    layout = Layout.find()
    result = stack.apply(layout, force=force)
    if as_json:
        emit_json(_document(result))
    if result.changed:
        note(f"applied {len(result.patches)} patch(es): HEAD {result.head}, tree {result.tree}, every byte proven")
    else:
        note(f"nothing to do: {len(result.patches)} patch(es) applied, HEAD {result.head}, every byte proven")
    return 0


@app.command(epilog=examples("dgrctl patch unapply"))
def unapply(force: Force = False, as_json: Json = False) -> int:
    """Make the workspace hold the pin alone."""
    from dgrctl.console import emit_json, note
    from dgrctl.upstream import stack

    layout = Layout.find()
    result = stack.unapply(layout, force=force)
    if as_json:
        emit_json(_document(result))
    if result.changed:
        note(f"took {len(result.patches)} patch(es) off; the workspace holds the pin {result.pin}")
    else:
        note("nothing to do: no patch is applied")
    return 0


@app.command(epilog=examples("dgrctl patch status"))
def status(as_json: Json = False) -> int:
    """Tell pin, digest, applied or not, changed files, drift and size."""
    from dgrctl.console import emit_json
    from dgrctl.report.patch_text import status_lines
    from dgrctl.upstream import stack

    layout = Layout.find()
    result = stack.status(layout)
    if as_json:
        emit_json(_document(result))
    else:
        print("\n".join(status_lines(result)))
    return 0


@app.command(epilog=examples("dgrctl patch lint"))
def lint(as_json: Json = False) -> int:
    """Check numbers, headers, ownership, white space and size of the patches."""
    from dgrctl.console import emit_json
    from dgrctl.report.patch_text import lint_lines
    from dgrctl.upstream import lint as linting

    layout = Layout.find()
    report = linting.lint(layout)
    if as_json:
        emit_json(asdict(report) | {"lines": msgspec.to_builtins(report.lines)})
    else:
        print("\n".join(lint_lines(report)))
    return PatchError.exit_code if report.findings else 0


@app.command(epilog=examples("dgrctl patch record"))
def record(as_json: Json = False) -> int:
    """Prove the applied stack, and sign what it is."""
    from dgrctl.console import emit_json, note
    from dgrctl.evidence.keys import signing_key
    from dgrctl.evidence.stack_record import materials, record_stack

    layout = Layout.find()
    result = record_stack(layout, signing_key(layout))
    if as_json:
        document = msgspec.to_builtins(result.record)
        emit_json({"file": str(result.path), "sha256": result.sha256, "record": document, "materials": materials(result.record)})
    note(f"{'signed' if result.written else 'nothing to do: signed already'}: {result.path}, SHA-256 {result.sha256}")
    return 0


@app.command(
    epilog=examples("dgrctl patch bump --to master", "dgrctl patch bump --continue", "dgrctl patch bump --to b7000 --commit")
)
def bump(
    ctx: typer.Context,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="REF", help="Commit, tag or branch.", rich_help_panel="What to do: one of these"),
    ] = None,
    bisection: Annotated[
        str | None,
        typer.Option(
            "--bisect",
            metavar="GOOD..BAD",
            help="Find the newest commit of this range that the stack applies to.",
            rich_help_panel="What to do: one of these",
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Go on with the conflict resolved.",
            metavar="",
            rich_help_panel="What to do: one of these",
        ),
    ] = False,
    drop: Annotated[
        bool,
        typer.Option(
            "--drop",
            help="Go on without the patch that conflicts.",
            metavar="",
            rich_help_panel="What to do: one of these",
        ),
    ] = False,
    give_up: Annotated[
        bool,
        typer.Option(
            "--abort",
            help="Give the bump up. Nothing was changed.",
            metavar="",
            rich_help_panel="What to do: one of these",
        ),
    ] = False,
    transport: Transport = None,
    source: Annotated[
        File | None, typer.Option("--from", metavar="PATH", help="Use a bundle, clone, or source package instead.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Write pin, patches and lock if nothing is wrong.", metavar="")
    ] = False,
    no_build: Annotated[
        bool,
        typer.Option("--no-build", help="Do not build the result or compare it with the reference.", metavar=""),
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME|FILE",
            help="What to compare with. Default: two stages of the small model.",
            autocompletion=complete_recipes,
        ),
    ] = None,
    storage: Storage = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Try the stack on another upstream. With --commit, move the pin to it."""
    exactly_one(ctx, {"--to": to, "--bisect": bisection, "--continue": go_on, "--drop": drop, "--abort": give_up})
    from dgrctl.console import emit_json, note
    from dgrctl.report.patch_text import BUMP_HEADINGS, bump_notes, bump_rows
    from dgrctl.report.table import print_table
    from dgrctl.upstream import bump as bumping

    layout = Layout.find()
    if commit and (give_up or bisection):
        raise UsageError(
            "nothing is committed by this", where="--commit", remedy="--commit goes with --to, --continue and --drop"
        )
    if (transport or source) and (give_up or go_on or drop):
        raise UsageError("the bump under way has its target already", where="--transport, --from", remedy="leave them away")
    if give_up:
        there = bumping.abort(layout)
        note("the bump was given up; nothing outside .dgr/bump had changed" if there else "nothing to do: no bump is under way")
        if as_json:
            emit_json({"aborted": there})
        return 0
    if bisection is not None:
        return _bisect(layout, bisection, transport, source, wide=wide, as_json=as_json)
    prove = None
    if not no_build:
        from dgrctl.certify.smoke import prover

        prove = prover(layout, recipe=recipe, storage=storage)
    if to is not None:
        report = bumping.bump(
            layout,
            to=to,
            transport=transport,
            source=source,
            commit=commit,
            prove=prove,
        )
    else:
        report = bumping.resume(layout, drop=drop, commit=commit, prove=prove)
    if as_json:
        emit_json(msgspec.to_builtins(report))
    else:
        print_table(BUMP_HEADINGS, bump_rows(report.patches), wide=wide)
    for line in bump_notes(report):
        note(line)
    return bumping.exit_code(report)


def _bisect(layout: Layout, bisection: str, transport: str | None, source: Path | None, *, wide: bool, as_json: bool) -> int:
    from dgrctl.console import emit_json, note
    from dgrctl.report.patch_text import BUMP_HEADINGS, bisect_notes, bump_rows
    from dgrctl.report.table import print_table
    from dgrctl.upstream.bisect import bisect

    report = bisect(layout, bisection, transport=transport, source=source)
    if as_json:
        emit_json(msgspec.to_builtins(report))
    else:
        print_table(BUMP_HEADINGS, bump_rows(report.patches), wide=wide)
    for line in bisect_notes(report):
        note(line)
    return 0


@app.command(epilog=examples("dgrctl patch shell", "dgrctl patch shell -- git log --oneline"))
def shell(
    words: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", help="What to run. Default: your shell.")] = None,
    as_json: Json = False,
) -> int:
    """Open a shell in the workspace, or run a command there."""
    from dgrctl.console import emit_json, note
    from dgrctl.upstream.shell import shell as open_shell

    layout = Layout.find()
    note(f"in {layout.workspace}: one commit is one patch; dgrctl patch export writes them")
    result = open_shell(layout, words or [], quiet=as_json)
    if as_json:
        emit_json(asdict(result))
    if result.dirty:
        note(f"{len(result.dirty)} file(s) are not committed; commit them, then: dgrctl patch export")
    elif not result.exported:
        note("the commits differ from the patches; next: dgrctl patch export")
    # Of one's own shell, only that it ended counts.
    return result.exit_code if words else 0


@app.command(epilog=examples("dgrctl patch export"))
def export(
    force: Annotated[
        bool,
        typer.Option("--force", help="Also write over patches that changed since the workspace was made.", metavar=""),
    ] = False,
    as_json: Json = False,
) -> int:
    """Write the workspace's commits as patch files and lock."""
    from dgrctl.console import emit_json, note
    from dgrctl.report.patch_text import size_text
    from dgrctl.upstream import export as exporting

    layout = Layout.find()
    result = exporting.export(layout, force=force)
    if as_json:
        emit_json({"written": result.written, "removed": result.removed, "lock": msgspec.to_builtins(result.lock)})
    for name in result.written:
        note(f"wrote   {layout.patches / name}")
    for name in result.removed:
        note(f"removed {layout.patches / name}")
    if not result.written and not result.removed:
        note("nothing to do: the patches are what the workspace's commits give")
    note(f"stack {result.lock.stack_digest}; changed lines: {size_text(result.lock.lines)}")
    return 0


def _document(result: PatchStatus) -> dict[str, object]:
    return asdict(result) | {"lines": msgspec.to_builtins(result.lines)}
