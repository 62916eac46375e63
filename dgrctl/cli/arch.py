"""``dgrctl arch``: which architectures can be split, as runs have shown."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import msgspec

from dgrctl.console import emit_json, note
from dgrctl.errors import CertificationFailed
from dgrctl.layout import Layout
from dgrctl.recipes.architectures import SPLITTABLE, Architecture, load_roster, roster_path
from dgrctl.report.table import print_table


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``arch`` and its actions."""
    group = commands.add_parser("arch", help="which architectures can be split, and certify them", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the roster: every architecture of the pin, its status and why", allow_abbrev=False)
    listing.set_defaults(run=_list)

    checking = actions.add_parser(
        "check",
        help="run architectures at every cut, and compare with the whole model; changes nothing",
        description="Exit code 0: all of them can be split; 20: one cannot.",
        allow_abbrev=False,
    )
    checking.add_argument("names", metavar="NAME", nargs="+", help="an architecture, as GGUF files name it")
    checking.set_defaults(run=_check)

    certifying = actions.add_parser(
        "certify", help="the same, and enter the result into the roster, which the worker is built with", allow_abbrev=False
    )
    certifying.add_argument("names", metavar="NAME", nargs="*", help="architectures; default: all of the pin")
    certifying.set_defaults(run=_certify)

    for parser in (listing, checking, certifying):
        parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def _list(layout: Layout, arguments: argparse.Namespace) -> int:
    _show(load_roster(layout).architectures, as_json=arguments.json)
    return 0


def _check(layout: Layout, arguments: argparse.Namespace) -> int:
    from dgrctl.certify.architectures import run  # noqa: PLC0415 - numpy and gRPC are slow to load and only needed here

    rows = run.check(layout, arguments.names)
    _show(rows, as_json=arguments.json)
    return 0 if all(row.status in SPLITTABLE for row in rows) else CertificationFailed.exit_code


def _certify(layout: Layout, arguments: argparse.Namespace) -> int:
    from dgrctl.certify.architectures import run  # noqa: PLC0415 - as above

    roster = run.certify(layout, arguments.names)
    _show(roster.architectures, as_json=arguments.json)
    note(f"wrote {roster_path(layout)}; dgrctl build compiles it into the worker")
    return 0


def _show(rows: Sequence[Architecture], *, as_json: bool) -> None:
    if as_json:
        emit_json({"architectures": msgspec.to_builtins(rows)})
    else:
        print_table(
            ("ARCHITECTURE", "STATUS", "CUTS", "LOGITS", "REASON"),
            [(row.name, row.status, f"{row.cuts:,}", f"{row.logits:,}", row.reason) for row in rows],
        )
    counts = Counter(row.status for row in rows)
    note(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
