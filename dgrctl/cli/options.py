"""Options and arguments that several commands share, with their completion."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from dgrctl.errors import UsageError
from dgrctl.layout import Layout
from dgrctl.nearest import suggest

_ROSTER = Path("worker", "engine", "architectures.json")


def examples(*commands: str) -> str:
    """The end of a command's help: what a person would type."""
    return "\n\n".join(("Examples:", *(f"  {command}" for command in commands)))


def _inherited(ctx: typer.Context, value: bool) -> bool:
    """True also where a command above this one was given --json."""
    above = ctx.parent
    while above is not None and not value:
        value = bool(above.params.get("as_json"))
        above = above.parent
    return value


def _layout() -> Layout | None:
    try:
        return Layout.find()
    except UsageError:
        return None


def complete_recipes(incomplete: str) -> list[str]:
    """Names of the recipes under ``recipes/``."""
    return _stems(lambda layout: layout.recipes, incomplete)


def complete_models(incomplete: str) -> list[str]:
    """Ids of the models of ``manifests/models/``."""
    return _stems(lambda layout: layout.model_manifests, incomplete)


def complete_lanes(incomplete: str) -> list[str]:
    """Names of the lanes."""
    from dgrctl.lanes.device import LANES

    return [lane for lane in LANES if lane.startswith(incomplete)]


def complete_architectures(incomplete: str) -> list[str]:
    """Names of the architectures on the roster."""
    layout = _layout()
    if layout is None:
        return []
    try:
        rows = json.loads((layout.root / _ROSTER).read_text(encoding="utf-8"))["architectures"]
        names = [str(row["name"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def _stems(folder: Callable[[Layout], Path], incomplete: str) -> list[str]:
    layout = _layout()
    names = sorted(path.stem for path in folder(layout).glob("*.toml")) if layout else []
    return [name for name in names if name.startswith(incomplete)]


def _known_lane(ctx: typer.Context, value: str) -> str:
    from dgrctl.lanes.device import LANES

    if value not in LANES and not ctx.resilient_parsing:
        raise UsageError(
            f"there is no lane {value!r}",
            where=ctx.get_usage().removeprefix("Usage: "),
            remedy=suggest(value, LANES, f"name one of {', '.join(LANES)}"),
        )
    return value


def exactly_one(ctx: typer.Context, given: Mapping[str, object]) -> None:
    """Refuses a command line that gives none of these options, or more than one.

    Raises:
        UsageError: names them.
    """
    set_ones = [name for name, value in given.items() if value not in (None, False)]
    names = ", ".join(given)
    if len(set_ones) != 1:
        raise UsageError(
            f"{' and '.join(set_ones)} exclude each other" if set_ones else f"one of {names} is missing",
            where=ctx.get_usage().removeprefix("Usage: "),
            remedy=f"give exactly one of {names}; {ctx.command_path} --help explains them",
        )


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=_inherited, metavar="")]
Wide = Annotated[bool, typer.Option("--wide", help="Print each row of the table on one line, however long.", metavar="")]
Lane = Annotated[
    str,
    typer.Option(
        "--lane",
        metavar="LANE",
        help="The backend: cpu, cuda, rocm, vulkan or metal.",
        callback=_known_lane,
        autocompletion=complete_lanes,
    ),
]
Recipe = Annotated[
    str, typer.Option("--recipe", metavar="NAME|FILE", help="A recipe's name or file.", autocompletion=complete_recipes)
]
Storage = Annotated[
    str | None,
    typer.Option("--storage", metavar="FOLDER", help="Where models are kept. Default: DGR_STORAGE, else .dgr/models."),
]
ModelArgument = Annotated[str, typer.Argument(metavar="ID", help="A model of manifests/models/.", autocompletion=complete_models)]
Force = Annotated[bool, typer.Option("--force", help="Discard every change in the workspace.", metavar="")]
File = Path
Transport = Annotated[
    str | None, typer.Option("--transport", metavar="NAME", help="Use only this transport of the manifest: git or sdist.")
]
