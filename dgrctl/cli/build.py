"""``dgrctl build``: the worker and the reference of one lane."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the parser of ``dgrctl build``."""
    commands.add_parser("build", help="build the worker and the reference of one lane")
