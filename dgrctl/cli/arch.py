"""``dgrctl arch``: which architectures can be split, as runs have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import Json, Wide, complete_architectures, examples
from dgrctl.errors import CertificationFailed
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.recipes.architectures import Architecture

app = typer.Typer(add_completion=False, cls=NearestGroup, help="Show which architectures can be split, and certify them.")


@app.command("list", epilog=examples("dgrctl arch list", "dgrctl arch list --json"))
def show(wide: Wide = False, as_json: Json = False) -> int:
    """Show the roster: every architecture of the pin, its status and why."""
    from dgrctl.recipes.architectures import load_roster

    _show(load_roster(Layout.find()).architectures, wide=wide, as_json=as_json)
    return 0


@app.command(epilog=examples("dgrctl arch check llama gemma3"))
def check(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="An architecture, as GGUF files name it.", autocompletion=complete_architectures),
    ],
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Run architectures at every cut, and compare them with the whole model. This changes nothing.

    Exit code 0: all of them can be split. 20: one cannot.
    """
    from dgrctl.certify.architectures import run
    from dgrctl.recipes.architectures import SPLITTABLE

    rows = run.check(Layout.find(), names)
    _show(rows, wide=wide, as_json=as_json)
    return 0 if all(row.status in SPLITTABLE for row in rows) else CertificationFailed.exit_code


@app.command(epilog=examples("dgrctl arch certify", "dgrctl arch certify llama"))
def certify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Default: all of the pin.", autocompletion=complete_architectures),
    ] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Run the same, and enter the result into the roster, which the worker is built with."""
    from dgrctl.certify.architectures import run
    from dgrctl.console import note
    from dgrctl.recipes.architectures import roster_path

    layout = Layout.find()
    roster = run.certify(layout, names or [])
    _show(roster.architectures, wide=wide, as_json=as_json)
    note(f"wrote {roster_path(layout)}; dgrctl build compiles it into the worker")
    return 0


def _show(rows: Sequence[Architecture], *, wide: bool, as_json: bool) -> None:
    from dgrctl.console import emit_json, note
    from dgrctl.report.table import print_table

    if as_json:
        emit_json({"architectures": msgspec.to_builtins(rows)})
    else:
        print_table(
            ("ARCHITECTURE", "STATUS", "CUTS", "LOGITS", "REASON"),
            [(row.name, row.status, f"{row.cuts:,}", f"{row.logits:,}", row.reason) for row in rows],
            wide=wide,
        )
    counts = Counter(row.status for row in rows)
    note(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
