"""``dgrctl evidence``: show and verify signed evidence, and the ledger of runs."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import File, Json, Wide, examples
from dgrctl.errors import EvidenceError
from dgrctl.layout import Layout

app = typer.Typer(add_completion=False, cls=NearestGroup, help="Show and verify signed evidence and the ledger.")

Keys = Annotated[
    list[File] | None, typer.Option("--key", metavar="PEM", help="Trust this public key too. The option can be repeated.")
]


@app.command(epilog=examples("dgrctl evidence show certs/matrix.dsse.json"))
def show(
    file: Annotated[File, typer.Argument(metavar="FILE")], key: Keys = None, wide: Wide = False, as_json: Json = False
) -> int:
    """Show what a signed file says, and whether it verifies."""
    from dgrctl.console import emit_json
    from dgrctl.evidence.inspection import show_file
    from dgrctl.evidence.public_keys import load_public_key
    from dgrctl.report.evidence_text import print_shown

    layout = Layout.find()
    shown = show_file(layout, file, [load_public_key(path) for path in key or ()])
    if as_json:
        emit_json(msgspec.to_builtins(shown))
    else:
        print_shown(shown, wide=wide)
    return 0


@app.command(epilog=examples("dgrctl evidence verify certs/evidence/*.json", "dgrctl evidence verify --key signer.pem FILE"))
def verify(files: Annotated[list[File], typer.Argument(metavar="FILE")], key: Keys = None, as_json: Json = False) -> int:
    """Verify signed files: every byte, signature and number."""
    from dgrctl.console import emit_json
    from dgrctl.evidence.inspection import verify_files
    from dgrctl.evidence.public_keys import load_public_key
    from dgrctl.report.evidence_text import print_result

    layout = Layout.find()
    results = verify_files(layout, files, [load_public_key(path) for path in key or ()])
    if as_json:
        emit_json({"files": msgspec.to_builtins(results)})
    else:
        for result in results:
            print_result(result)
    codes = {result.exit_code for result in results}
    # What is wrong comes before what could not be checked.
    return EvidenceError.exit_code if EvidenceError.exit_code in codes else max(codes)


@app.command(epilog=examples("dgrctl evidence ledger"))
def ledger(wide: Wide = False, as_json: Json = False) -> int:
    """Show the runs on record, checked from the first to the last."""
    from dgrctl.console import emit_json, note
    from dgrctl.evidence.ledger import Ledger
    from dgrctl.report.evidence_text import print_ledger

    runs = Ledger(Layout.find())
    chain = runs.verify()
    if chain.torn:
        note(
            f"{runs.path} ends in {len(chain.torn)} bytes of a record whose writing was interrupted; "
            "the next run sets them aside and goes on"
        )
    if as_json:
        records = [
            {"sha256": digest, **msgspec.to_builtins(record)} for digest, record in zip(chain.digests, chain.records, strict=True)
        ]
        emit_json({"records": records, "torn_bytes": len(chain.torn)})
    else:
        print_ledger(chain, wide=wide)
    return 0
