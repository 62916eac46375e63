"""``dgrctl certify``: parity and speed of one recipe on this machine, judged by a lock, signed whatever the verdict."""

from __future__ import annotations

import argparse

from dgrctl.console import emit_json
from dgrctl.errors import CertificationFailed
from dgrctl.layout import Layout


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the group to the command line."""
    parser = commands.add_parser(
        "certify",
        help="certify a recipe on this machine and sign the evidence",
        description="Compares the split with the whole model bit by bit, measures both in pairs, and signs the verdict. "
        "Exit code 0: passed; 20: failed, with signed evidence that says by how much; 21: could not be judged.",
        allow_abbrev=False,
    )
    parser.add_argument("--lane", required=True, help="the lane to certify")
    parser.add_argument("--recipe", required=True, metavar="NAME|FILE", help="the recipe to certify")
    parser.add_argument(
        "--lock", metavar="NAME|FILE", help="the lock that judges; default: the newest version for this lane and model"
    )
    parser.add_argument("--storage", metavar="FOLDER", help="where models are kept")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    parser.set_defaults(run=_certify)


def _certify(layout: Layout, arguments: argparse.Namespace) -> int:
    from dgrctl.certify import run, summary  # noqa: PLC0415 - numpy and gRPC are slow to load and only needed here

    result = run.certify(layout, lane=arguments.lane, recipe=arguments.recipe, lock=arguments.lock, storage=arguments.storage)
    summary.show(result)
    if arguments.json:
        emit_json(summary.as_dict(result))
    return 0 if result.certification.verdict == "passed" else CertificationFailed.exit_code
