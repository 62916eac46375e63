"""``dgrctl matrix``: which lane, device, model and recipe may be advertised, and why the others may not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from dgrctl.cli.options import Json, Wide, examples
from dgrctl.errors import UnusedEvidenceError
from dgrctl.layout import Layout

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("dgrctl matrix", "dgrctl matrix --write --json"))
def matrix(
    write: Annotated[bool, typer.Option("--write", help="Also sign the matrix into certs/matrix.dsse.json.", metavar="")] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Show which lane, device, model and recipe may be advertised."""
    from dgrctl.console import emit_json, note
    from dgrctl.evidence.keys import signing_key
    from dgrctl.evidence.machine import lane_states
    from dgrctl.evidence.matrix import lane_matrix
    from dgrctl.evidence.matrix_file import gather_inputs, write_matrix
    from dgrctl.evidence.trust import local_trust
    from dgrctl.report.matrix_table import print_matrix

    layout = Layout.find()
    key = signing_key(layout) if write else None
    found = lane_matrix(gather_inputs(layout, local_trust(layout), lane_states(), datetime.now(UTC).date()))
    for problem in found.problems:
        note(f"not used: certs/evidence/{problem.file}: {problem.reason}")
    if as_json:
        emit_json(msgspec.to_builtins(found))
    else:
        print_matrix(found, wide=wide)
    if key is not None:
        note(f"signed matrix: {write_matrix(layout, found, key)}")
    return 0 if found.complete else UnusedEvidenceError.exit_code
