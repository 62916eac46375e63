"""``dgrctl evidence``: show and verify signed evidence, and the ledger of runs."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the group to the command line."""
    commands.add_parser("evidence", help="show and verify signed evidence and the ledger", allow_abbrev=False)
