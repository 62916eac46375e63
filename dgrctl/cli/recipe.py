"""``dgrctl recipe``: what a recipe resolves to, and which placement given machines allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import Json, Storage, Wide, complete_models, complete_recipes, examples
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.recipes.check import Resolved
    from dgrctl.recipes.placement import PlacedStage

app = typer.Typer(add_completion=False, cls=NearestGroup, help="Check a recipe, or compute a placement for given machines.")


@app.command(epilog=examples("dgrctl recipe check smollm2-135m.cpu-2stage"))
def check(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="A recipe's file, or its name under recipes/.", autocompletion=complete_recipes),
    ],
    storage: Storage = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Check a recipe against its model, and show layers and bytes per stage."""
    from dgrctl.console import emit_json, note
    from dgrctl.recipes.check import resolved
    from dgrctl.recipes.recipe import find_recipe
    from dgrctl.report.table import print_table

    layout = Layout.find()
    found = resolved(layout, find_recipe(layout, recipe), storage)
    if as_json:
        emit_json(_document(found))
        return 0
    used = found.recipe
    note(f"{used.name}: {used.model} on lane {used.lane}, wire {used.boundary.wire}, digest {used.digest()}")
    rows = [
        (f"{index}", stage.role, str(stage.layers), f"{stage.layers.end - stage.layers.begin}", f"{stage.bytes:,}")
        for index, stage in enumerate(found.stages)
    ]
    print_table(("STAGE", "ROLE", "LAYERS", "COUNT", "BYTES"), rows, wide=wide)
    return 0


@app.command(epilog=examples("dgrctl recipe place smollm2-135m-instruct-q4_1 --memory 1GiB,1GiB"))
def place(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, or a target of manifests/targets/.", autocompletion=complete_models)
    ],
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZES", help="Each machine's memory, in route order: 128GiB,96GiB,...")
    ],
    context: Annotated[int, typer.Option("--context", metavar="N", help="Positions per session.")] = 8192,
    sessions: Annotated[int, typer.Option("--sessions", metavar="N", help="Sessions at once.")] = 1,
    ubatch: Annotated[int, typer.Option("--ubatch", metavar="N", help="Rows of one decode call.")] = 512,
    kv_type_k: Annotated[str, typer.Option("--kv-type-k", metavar="TYPE", help="Type of cached keys.")] = "f16",
    kv_type_v: Annotated[str, typer.Option("--kv-type-v", metavar="TYPE", help="Type of cached values.")] = "f16",
    storage: Storage = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Cut a model for machines of given memory."""
    from dgrctl.console import emit_json, note
    from dgrctl.recipes.place import place_model
    from dgrctl.report.table import print_table

    settings = {
        "threads": 1,
        "context": context,
        "sessions": sessions,
        "ubatch": ubatch,
        "flash_attention": True,
        "kv_type_k": kv_type_k,
        "kv_type_v": kv_type_v,
        "prefill_window": 1,
    }
    cut, placed = place_model(Layout.find(), model, memory, settings, storage)
    ranges = [[stage.layers.begin, stage.layers.end] for stage in placed]
    if as_json:
        emit_json({"model": cut.model_id, "layer_count": cut.layer_count, "stages": [_placed(stage) for stage in placed]})
        return 0
    note(f"{cut.model_id}: {len(placed)} stages; in a recipe: ranges = {ranges}")
    rows = [
        (f"{index}", str(stage.layers), *(f"{value:,}" for key, value in _placed(stage).items() if key not in ("begin", "end")))
        for index, stage in enumerate(placed)
    ]
    headings = ("STAGE", "LAYERS", "WEIGHTS", "VOCABULARY", "STATE", "COMPUTE", "NEEDED", "MEMORY", "FREE")
    print_table(headings, rows, wide=wide)
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
