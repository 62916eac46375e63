"""``dgrctl recipe``: what a recipe resolves to, and which placement given machines allow."""

from __future__ import annotations

import argparse

from dgrctl.console import emit_json, note
from dgrctl.layout import Layout
from dgrctl.recipes.check import Resolved, resolved
from dgrctl.recipes.place import place_model
from dgrctl.recipes.placement import PlacedStage
from dgrctl.recipes.recipe import find_recipe
from dgrctl.report.table import print_table


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``recipe`` and its subcommands."""
    group = commands.add_parser("recipe", help="check a recipe, show its placement, or compute one", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check", help="check a recipe against its model; show layers and bytes per stage", allow_abbrev=False
    )
    check.add_argument("recipe", metavar="RECIPE", help="a recipe's file, or its name under recipes/")
    check.add_argument("--storage", metavar="FOLDER", help="model storage (default: DGR_STORAGE, else .dgr/models)")
    check.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    check.set_defaults(run=_check)

    place = actions.add_parser(
        "place", help="cut a model for machines of given memory; a target of manifests/targets/ too", allow_abbrev=False
    )
    place.add_argument("model", metavar="MODEL", help="a model, or a target")
    place.add_argument("--memory", required=True, metavar="SIZES", help="each machine's in route order: 128GiB,96GiB,…")
    place.add_argument("--context", type=int, default=8192, metavar="N", help="positions per session (default: 8192)")
    place.add_argument("--sessions", type=int, default=1, metavar="N", help="at once (default: 1)")
    place.add_argument("--ubatch", type=int, default=512, metavar="N", help="rows of one decode call (default: 512)")
    place.add_argument("--kv-type-k", default="f16", metavar="TYPE", help="type of cached keys (default: f16)")
    place.add_argument("--kv-type-v", default="f16", metavar="TYPE", help="type of cached values (default: f16)")
    place.add_argument("--storage", metavar="FOLDER", help="model storage (default: DGR_STORAGE, else .dgr/models)")
    place.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    place.set_defaults(run=_place)


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


def _place(layout: Layout, arguments: argparse.Namespace) -> int:
    settings = {
        "threads": 1,
        "context": arguments.context,
        "sessions": arguments.sessions,
        "ubatch": arguments.ubatch,
        "flash_attention": True,
        "kv_type_k": arguments.kv_type_k,
        "kv_type_v": arguments.kv_type_v,
        "prefill_window": 1,
    }
    model, placed = place_model(layout, arguments.model, arguments.memory, settings, arguments.storage)
    ranges = [[stage.layers.begin, stage.layers.end] for stage in placed]
    if arguments.json:
        emit_json({"model": model.model_id, "layer_count": model.layer_count, "stages": [_placed(stage) for stage in placed]})
        return 0
    note(f"{model.model_id}: {len(placed)} stages; in a recipe: ranges = {ranges}")
    rows = [
        (f"{index}", str(stage.layers), *(f"{value:,}" for key, value in _placed(stage).items() if key not in ("begin", "end")))
        for index, stage in enumerate(placed)
    ]
    headings = ("STAGE", "LAYERS", "WEIGHTS", "VOCABULARY", "STATE", "COMPUTE", "NEEDED", "MEMORY", "FREE")
    print_table(headings, rows)
    return 0


def _placed(stage: PlacedStage) -> dict[str, int]:
    return {
        "begin": stage.layers.begin,
        "end": stage.layers.end,
        "weights": stage.footprint.weights,
        "vocabulary": stage.footprint.vocabulary,
        "state": stage.footprint.state,
        "compute": stage.footprint.compute,
        "needed": stage.needed,
        "memory": stage.memory,
        "free": stage.free,
    }


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
