"""``dgrctl worker``: one worker by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import Json, Recipe, Storage, examples
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.runtime.byhand import Started

app = typer.Typer(add_completion=False, cls=NearestGroup, help="Start one stage of a recipe by hand.")


@app.callback()
def _worker() -> None:
    """A group, although it has one command today."""


@app.command(epilog=examples("dgrctl worker start --recipe smollm2-135m.cpu-2stage --stage 0 --listen 127.0.0.1:7001"))
def start(
    recipe: Recipe,
    stage: Annotated[int, typer.Option("--stage", metavar="N", help="Which stage. 0 is the head.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve. Port 0 picks a free one.")],
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Run one stage in the foreground until Ctrl-C or SIGTERM.

    When the stage is ready, its address goes to stdout. With --json, one line of JSON replaces it.
    """
    from dgrctl.console import emit_json, note
    from dgrctl.runtime.byhand import serve_by_hand

    def announce(started: Started) -> None:
        if started.exposed:
            note("warning: other machines can connect, and nothing on this port is encrypted or authenticated")
        note(f"stage {started.stage} of {started.recipe} serves on {started.address}; Ctrl-C ends it")
        if as_json:
            emit_json(started.as_dict(), one_line=True)
        else:
            print(started.address, flush=True)

    serve_by_hand(Layout.find(), recipe, stage, listen=listen, storage=storage, announce=announce)
    return 0
