"""``dgrctl model``: real models, pulled and hashed, and fixture models, made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import File, Json, ModelArgument, Storage, Wide, examples
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.artifacts.manifest import ModelManifest

app = typer.Typer(add_completion=False, cls=NearestGroup, help="Pull, list, verify and make models.")
synth = typer.Typer(add_completion=False, cls=NearestGroup, help="Make a fixture model: small, random, for tests alone.")


@app.command(epilog=examples("dgrctl model pull smollm2-135m-instruct-q4_1"))
def pull(
    model: ModelArgument,
    repair: Annotated[bool, typer.Option("--repair", help="Bring the parts again whose bytes are wrong.", metavar="")] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Bring a model to this machine, and hash every part of it."""
    from dgrctl.artifacts.provision import provision
    from dgrctl.console import emit_json, note

    layout = Layout.find()
    outcome = provision(layout, model, storage, repair=repair)
    if outcome.brought:
        note(f"{model}: pulled {', '.join(outcome.brought)} into {outcome.model.first_part.parent}")
    else:
        note(f"{model}: nothing to do, the set is complete and was hashed again")
    if as_json:
        emit_json({**_document(outcome.model), "changed": bool(outcome.brought), "brought": list(outcome.brought)})
    return 0


@app.command("list", epilog=examples("dgrctl model list"))
def show(storage: Storage = None, wide: Wide = False, as_json: Json = False) -> int:
    """Show published models and fixtures, and which of them are here. This hashes nothing."""
    from dgrctl.artifacts.provision import statuses
    from dgrctl.console import emit_json
    from dgrctl.report.table import print_table

    layout = Layout.find()
    found = statuses(layout, storage)
    if as_json:
        emit_json(
            {"models": [{**_summary(status.manifest), "state": status.state, "folder": str(status.folder)} for status in found]}
        )
        return 0
    rows = [
        (
            manifest.id,
            manifest.model_class,
            manifest.architecture,
            manifest.quantisation,
            f"{manifest.layer_count}",
            f"{manifest.size:,}",
            status.state,
        )
        for status in found
        for manifest in (status.manifest,)
    ]
    print_table(("MODEL", "CLASS", "ARCHITECTURE", "QUANTISATION", "LAYERS", "BYTES", "STATE"), rows, wide=wide)
    return 0


@app.command(epilog=examples("dgrctl model verify smollm2-135m-instruct-q4_1"))
def verify(model: ModelArgument, storage: Storage = None, as_json: Json = False) -> int:
    """Hash every part of a model that is here."""
    from dgrctl.artifacts.provision import verified_model
    from dgrctl.console import emit_json, note

    layout = Layout.find()
    found = verified_model(layout, model, storage)
    note(f"{model}: every part has the recorded SHA-256; set digest {found.set_digest}")
    if as_json:
        emit_json(_document(found))
    return 0


@synth.callback()
def _synth() -> None:
    """A group, although it has one kind today."""


@synth.command(epilog=examples("dgrctl model synth deepseek4", "dgrctl model synth deepseek4 --layers 12 --seed 7"))
def deepseek4(
    layers: Annotated[int, typer.Option("--layers", metavar="N", help="Main layers. The real model has 43.")] = 8,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same bytes.")] = 1,
    weights: Annotated[Literal["f32", "f16", "mixed"], typer.Option("--type", help="Types of the weights.")] = "f16",
    embedding: Annotated[
        int | None,
        typer.Option("--embedding", metavar="N", help="Width of a residual stream. Default: 128, and 256 for mixed."),
    ] = None,
    vision_bias: Annotated[
        bool,
        typer.Option("--vision-bias", help="Add the routing bias that only image tokens may take.", metavar=""),
    ] = False,
    parts: Annotated[int, typer.Option("--parts", metavar="N", help="Files. Of several, the first holds metadata alone.")] = 1,
    output: Annotated[
        File | None, typer.Option("--output", metavar="FOLDER", help="Write there instead of into the model storage.")
    ] = None,
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Make DeepSeek V4's structure in small."""
    from dgrctl.artifacts.synth.deepseek4 import DeepSeek4, default_embedding
    from dgrctl.artifacts.synth.make import synthesise
    from dgrctl.console import emit_json, note

    layout = Layout.find()
    fixture = DeepSeek4(
        layers=layers,
        seed=seed,
        weights=weights,
        embedding=default_embedding(weights) if embedding is None else embedding,
        vision_bias=vision_bias,
    )
    outcome = synthesise(layout, fixture, parts=parts, output=output, storage=storage)
    model = outcome.model
    if outcome.made:
        note(f"{model.manifest.id}: made in {model.first_part.parent}; set digest {model.set_digest}")
    else:
        note(f"{model.manifest.id}: nothing to do, the set is complete and was hashed again")
    if as_json:
        emit_json({**_document(model), "changed": outcome.made})
    return 0


app.add_typer(synth, name="synth")


def _document(model: LocalModel) -> dict[str, object]:
    parts = [
        {"name": part.name, "size": part.size, "sha256": part.sha256, "path": str(path)}
        for part, path in zip(model.manifest.parts, model.parts, strict=True)
    ]
    return {**_summary(model.manifest), "set_digest": model.set_digest, "parts": parts}


def _summary(manifest: ModelManifest) -> dict[str, object]:
    return {
        "id": manifest.id,
        "class": manifest.model_class,
        "title": manifest.title,
        "license": manifest.license,
        "architecture": manifest.architecture,
        "layer_count": manifest.layer_count,
        "quantisation": manifest.quantisation,
        "size": manifest.size,
    }
