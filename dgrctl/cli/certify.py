"""``dgrctl certify``: parity and speed of one recipe on this machine, judged by a lock, signed whatever the verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from dgrctl.cli.options import Json, Lane, Recipe, Storage, examples
from dgrctl.errors import CertificationFailed
from dgrctl.layout import Layout

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("dgrctl certify --lane cpu --recipe smollm2-135m.cpu-2stage"))
def certify(
    lane: Lane,
    recipe: Recipe,
    lock: Annotated[
        str | None,
        typer.Option(
            "--lock", metavar="NAME|FILE", help="The lock that judges. Default: the newest version for this lane and model."
        ),
    ] = None,
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Certify a recipe on this machine, and sign the evidence.

    The command compares the split with the whole model bit by bit. It measures both in pairs and signs the verdict.

    Exit code 0: passed. 20: failed, and the signed evidence says by how much. 21: could not be judged.
    """
    from dgrctl.certify import run, summary
    from dgrctl.console import emit_json

    result = run.certify(Layout.find(), lane=lane, recipe=recipe, lock=lock, storage=storage)
    summary.show(result)
    if as_json:
        emit_json(summary.as_dict(result))
    return 0 if result.certification.verdict == "passed" else CertificationFailed.exit_code
