"""``dgrctl worker``: one worker by hand."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``worker``."""
    commands.add_parser("worker", help="start one stage of a recipe by hand")
