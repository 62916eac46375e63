"""``dgrctl fetch``: brings upstream at the pin, proven."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``fetch``."""
    commands.add_parser("fetch", help="fetch llama.cpp at the pin, and prove that it is that commit")
