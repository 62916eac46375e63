"""``dgrctl fetch``: brings upstream at the pin, proven."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dgrctl.cli.options import File, Json, Transport, examples
from dgrctl.layout import Layout

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("dgrctl fetch", "dgrctl fetch --from ~/llama.cpp"))
def fetch(
    transport: Transport = None,
    source: Annotated[File | None, typer.Option("--from", metavar="PATH", help="Use this bundle or clone of yours.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch anew, and replace what is there, changed or not.", metavar="")
    ] = False,
    as_json: Json = False,
) -> int:
    """Fetch llama.cpp at the pin, and prove that it is that commit."""
    from dgrctl.console import emit_json, note
    from dgrctl.upstream import fetch as upstream

    result = upstream.fetch(Layout.find(), transport=transport, source=source, force=force)
    if as_json:
        emit_json(asdict(result))
    if result.changed:
        note(f"fetched commit {result.commit}, tree {result.tree}, by {result.transport}; every byte proven")
    else:
        note(f"nothing to do: commit {result.commit} is there, every byte proven")
    return 0
