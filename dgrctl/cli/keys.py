"""``dgrctl keys``: the local development key."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the group to the command line."""
    commands.add_parser("keys", help="make or show the key that signs evidence on this machine", allow_abbrev=False)
