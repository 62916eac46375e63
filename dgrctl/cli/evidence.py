"""``dgrctl evidence``: show and verify signed evidence, and the ledger of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from dgrctl.console import emit_json, note
from dgrctl.errors import EvidenceError
from dgrctl.evidence.inspection import show_file, verify_files
from dgrctl.evidence.ledger import Ledger
from dgrctl.evidence.public_keys import load_public_key
from dgrctl.layout import Layout
from dgrctl.report.evidence_text import print_ledger, print_result, print_shown


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the group to the command line."""
    group = commands.add_parser("evidence", help="show and verify signed evidence and the ledger", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)

    show = actions.add_parser("show", help="what a signed file says, and whether it verifies", allow_abbrev=False)
    show.add_argument("file", type=Path, metavar="FILE")
    show.set_defaults(run=_show)

    verify = actions.add_parser("verify", help="verify signed files: every byte, signature and number", allow_abbrev=False)
    verify.add_argument("files", type=Path, nargs="+", metavar="FILE")
    verify.set_defaults(run=_verify)

    ledger = actions.add_parser("ledger", help="the runs on record, checked from the first to the last", allow_abbrev=False)
    ledger.set_defaults(run=_ledger)

    for parser in (show, verify, ledger):
        parser.add_argument("--json", action="store_true", help="as JSON on stdout")
    for parser in (show, verify):
        parser.add_argument(
            "--key", type=Path, action="append", default=[], metavar="PEM", help="trust this public key too; can be repeated"
        )


def _show(layout: Layout, arguments: argparse.Namespace) -> int:
    shown = show_file(layout, arguments.file, [load_public_key(path) for path in arguments.key])
    if arguments.json:
        emit_json(msgspec.to_builtins(shown))
    else:
        print_shown(shown)
    return 0


def _verify(layout: Layout, arguments: argparse.Namespace) -> int:
    results = verify_files(layout, arguments.files, [load_public_key(path) for path in arguments.key])
    if arguments.json:
        emit_json({"files": msgspec.to_builtins(results)})
    else:
        for result in results:
            print_result(result)
    return 0 if all(result.verified for result in results) else EvidenceError.exit_code


def _ledger(layout: Layout, arguments: argparse.Namespace) -> int:
    ledger = Ledger(layout)
    chain = ledger.verify()
    if chain.torn:
        note(
            f"{ledger.path} ends in {len(chain.torn)} bytes of a record whose writing was interrupted; "
            "the next run sets them aside and goes on"
        )
    if arguments.json:
        records = [
            {"sha256": digest, **msgspec.to_builtins(record)} for digest, record in zip(chain.digests, chain.records, strict=True)
        ]
        emit_json({"records": records, "torn_bytes": len(chain.torn)})
    else:
        print_ledger(chain)
    return 0
