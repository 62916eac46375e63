"""``dgrctl model``: real models, pulled and hashed."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``model`` and its subcommands."""
    commands.add_parser("model", help="pull, list and verify models")
