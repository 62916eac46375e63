"""``dgrctl build``: the worker and the reference of one lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from dgrctl.cli.options import Json, Lane, examples
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.lanes.build import BuildResult

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("dgrctl build --lane cpu", "dgrctl build --lane cpu --isa x86-64-v3 --role worker"))
def build(
    lane: Lane,
    isa: Annotated[
        str | None,
        typer.Option("--isa", metavar="LEVEL", help="ISA level, such as x86-64-v3. Default: the highest of this processor."),
    ] = None,
    role: Annotated[
        Literal["reference", "worker", "all"], typer.Option("--role", help="Build only one of the two programs.")
    ] = "all",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="Commands at once. Default: as processors and memory allow."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build anew, whatever is there.", metavar="")] = False,
    as_json: Json = False,
) -> int:
    """Build the worker and the reference of one lane."""
    from dgrctl.console import emit_json
    from dgrctl.lanes import build as building
    from dgrctl.lanes.plan import ROLES

    roles = ROLES if role == "all" else (role,)
    result = building.build(Layout.find(), lane, isa=isa, roles=roles, force=force, jobs=jobs)
    if as_json:
        emit_json(msgspec.to_builtins(result.record))
    _tell(result)
    return 0


def _tell(result: BuildResult) -> None:
    from dgrctl.console import note

    if not result.built:
        names = " and ".join(sorted(result.record.binaries))
        note(f"nothing to do: built and unchanged for {result.record.lane}, {result.record.isa}: {names}")
    for program in result.built:
        binary = result.record.binaries[program]
        note(f"built {program} for {result.record.lane}, {result.record.isa}: {binary.path}, SHA-256 {binary.sha256}")
