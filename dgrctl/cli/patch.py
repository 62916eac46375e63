"""``dgrctl patch``: applies the patch stack, tells its state, exports it."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``patch``."""
    commands.add_parser("patch", help="apply the patch stack to the fetched llama.cpp")
