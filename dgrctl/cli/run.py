"""``dgrctl run``: a prompt through a route, the answer on stdout."""

from __future__ import annotations

import argparse


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``run``."""
    commands.add_parser("run", help="stream an answer through a local or a running route")
