"""``dgrctl model``: real models, pulled and hashed, and fixture models, made here."""

from __future__ import annotations

import argparse
from pathlib import Path

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.manifest import ModelManifest
from dgrctl.artifacts.provision import provision, statuses, verified_model
from dgrctl.artifacts.synth.deepseek4 import WEIGHTS, DeepSeek4, default_embedding
from dgrctl.artifacts.synth.make import synthesise
from dgrctl.console import emit_json, note
from dgrctl.layout import Layout
from dgrctl.report.table import print_table


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``model`` and its subcommands."""
    group = commands.add_parser("model", help="pull, list, verify and make models", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)

    pull = actions.add_parser("pull", help="bring a model to this machine and hash every part of it", allow_abbrev=False)
    pull.add_argument("id", metavar="ID", help="a model of manifests/models/")
    pull.add_argument("--repair", action="store_true", help="bring again the parts whose bytes are wrong")
    pull.set_defaults(run=_pull)

    listing = actions.add_parser(
        "list", help="published models and fixtures, and which of them are here (not hashed)", allow_abbrev=False
    )
    listing.set_defaults(run=_list)

    verify = actions.add_parser("verify", help="hash every part of a model that is here", allow_abbrev=False)
    verify.add_argument("id", metavar="ID", help="a model of manifests/models/")
    verify.set_defaults(run=_verify)

    synth = actions.add_parser("synth", help="make a fixture model: small, random, for tests alone", allow_abbrev=False)
    kinds = synth.add_subparsers(dest="kind", metavar="KIND", required=True)
    deepseek4 = kinds.add_parser("deepseek4", help="DeepSeek V4's structure in small", allow_abbrev=False)
    deepseek4.add_argument("--layers", type=int, default=8, metavar="N", help="main layers (default: 8; the real model has 43)")
    deepseek4.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed gives the same bytes (default: 1)")
    deepseek4.add_argument("--type", choices=WEIGHTS, default="f16", help="types of the weights (default: f16)")
    deepseek4.add_argument("--embedding", type=int, metavar="N", help="width of a residual stream (default: 128; mixed: 256)")
    deepseek4.add_argument("--vision-bias", action="store_true", help="add the routing bias that only image tokens may take")
    deepseek4.add_argument("--parts", type=int, default=1, metavar="N", help="files; of several, the first holds metadata alone")
    deepseek4.add_argument("--output", type=Path, metavar="FOLDER", help="write there instead of into the model storage")
    deepseek4.set_defaults(run=_synth_deepseek4)

    for parser in (pull, listing, verify, deepseek4):
        parser.add_argument("--storage", metavar="FOLDER", help="model storage (default: DGR_STORAGE, else .dgr/models)")
        parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def _pull(layout: Layout, arguments: argparse.Namespace) -> int:
    outcome = provision(layout, arguments.id, arguments.storage, repair=arguments.repair)
    if outcome.brought:
        note(f"{arguments.id}: pulled {', '.join(outcome.brought)} into {outcome.model.first_part.parent}")
    else:
        note(f"{arguments.id}: nothing to do, the set is complete and was hashed again")
    if arguments.json:
        emit_json({**_document(outcome.model), "changed": bool(outcome.brought), "brought": list(outcome.brought)})
    return 0


def _synth_deepseek4(layout: Layout, arguments: argparse.Namespace) -> int:
    fixture = DeepSeek4(
        layers=arguments.layers,
        seed=arguments.seed,
        weights=arguments.type,
        embedding=default_embedding(arguments.type) if arguments.embedding is None else arguments.embedding,
        vision_bias=arguments.vision_bias,
    )
    outcome = synthesise(layout, fixture, parts=arguments.parts, output=arguments.output, storage=arguments.storage)
    model = outcome.model
    if outcome.made:
        note(f"{model.manifest.id}: made in {model.first_part.parent}; set digest {model.set_digest}")
    else:
        note(f"{model.manifest.id}: nothing to do, the set is complete and was hashed again")
    if arguments.json:
        emit_json({**_document(model), "changed": outcome.made})
    return 0


def _verify(layout: Layout, arguments: argparse.Namespace) -> int:
    model = verified_model(layout, arguments.id, arguments.storage)
    note(f"{arguments.id}: every part has the recorded SHA-256; set digest {model.set_digest}")
    if arguments.json:
        emit_json(_document(model))
    return 0


def _list(layout: Layout, arguments: argparse.Namespace) -> int:
    found = statuses(layout, arguments.storage)
    if arguments.json:
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
    print_table(("MODEL", "CLASS", "ARCHITECTURE", "QUANTISATION", "LAYERS", "BYTES", "STATE"), rows)
    return 0


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
