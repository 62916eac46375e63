"""``dgrctl model``: real models, pulled and hashed."""

from __future__ import annotations

import argparse

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.manifest import ModelManifest
from dgrctl.artifacts.provision import provision, statuses, verified_model
from dgrctl.layout import Layout
from dgrctl.report.console import emit_json, note
from dgrctl.report.table import print_table


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``model`` and its subcommands."""
    group = commands.add_parser("model", help="pull, list and verify models", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)

    pull = actions.add_parser("pull", help="bring a model to this machine and hash every part of it", allow_abbrev=False)
    pull.add_argument("id", metavar="ID", help="a model of manifests/models/")
    pull.add_argument("--repair", action="store_true", help="bring again the parts whose bytes are wrong")
    pull.set_defaults(run=_pull)

    listing = actions.add_parser(
        "list", help="the models that have a manifest, and which of them are here (not hashed)", allow_abbrev=False
    )
    listing.set_defaults(run=_list)

    verify = actions.add_parser("verify", help="hash every part of a model that is here", allow_abbrev=False)
    verify.add_argument("id", metavar="ID", help="a model of manifests/models/")
    verify.set_defaults(run=_verify)

    for parser in (pull, listing, verify):
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
        (manifest.id, manifest.architecture, manifest.quantisation, f"{manifest.layer_count}", f"{manifest.size:,}", status.state)
        for status in found
        for manifest in (status.manifest,)
    ]
    print_table(("MODEL", "ARCHITECTURE", "QUANTISATION", "LAYERS", "BYTES", "STATE"), rows)
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
        "title": manifest.title,
        "license": manifest.license,
        "architecture": manifest.architecture,
        "layer_count": manifest.layer_count,
        "quantisation": manifest.quantisation,
        "size": manifest.size,
    }
