"""``dgrctl recipe``: what a recipe resolves to."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``recipe`` and its subcommands."""
    commands.add_parser("recipe", help="check a recipe and show its placement")
