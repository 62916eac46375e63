"""``dgrctl matrix``: which lane, device, model and recipe may be advertised, and why the others may not."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the command line."""
    commands.add_parser("matrix", help="print the lane matrix", allow_abbrev=False)
