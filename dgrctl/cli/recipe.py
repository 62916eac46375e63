"""``dgrctl recipe``: what a recipe resolves to."""

from __future__ import annotations

import argparse

from dgrctl.layout import Layout
from dgrctl.recipes.check import Resolved, resolved
from dgrctl.recipes.recipe import find_recipe
from dgrctl.report.console import emit_json, note
from dgrctl.report.table import print_table


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``recipe`` and its subcommands."""
    group = commands.add_parser("recipe", help="check a recipe and show its placement", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check", help="check a recipe against its model; show layers and bytes per stage", allow_abbrev=False
    )
    check.add_argument("recipe", metavar="RECIPE", help="a recipe's file, or its name under recipes/")
    check.add_argument("--storage", metavar="FOLDER", help="model storage (default: DGR_STORAGE, else .dgr/models)")
    check.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    check.set_defaults(run=_check)


def _check(layout: Layout, arguments: argparse.Namespace) -> int:
    found = resolved(layout, find_recipe(layout, arguments.recipe), arguments.storage)
    if arguments.json:
        emit_json(_document(found))
        return 0
    recipe = found.recipe
    note(f"{recipe.name}: {recipe.model} on lane {recipe.lane}, wire {recipe.boundary.wire}, digest {recipe.digest()}")
    rows = [
        (f"{index}", stage.role, str(stage.layers), f"{stage.layers.end - stage.layers.begin}", f"{stage.bytes:,}")
        for index, stage in enumerate(found.stages)
    ]
    print_table(("STAGE", "ROLE", "LAYERS", "COUNT", "BYTES"), rows)
    return 0


def _document(found: Resolved) -> dict[str, object]:
    return {
        "recipe": found.recipe.name,
        "digest": found.recipe.digest(),
        "model": found.recipe.model,
        "model_sha256": found.model.set_digest,
        "lane": found.recipe.lane,
        "wire": found.recipe.boundary.wire,
        "layer_count": found.model.layer_count,
        "stages": [
            {
                "stage": index,
                "role": stage.role,
                "begin": stage.layers.begin,
                "end": stage.layers.end,
                "bytes": stage.bytes,
            }
            for index, stage in enumerate(found.stages)
        ],
    }
