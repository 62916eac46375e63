"""``dgrctl certify``: parity and speed of one recipe on this machine, judged by a lock, signed whatever the verdict."""

from __future__ import annotations

import argparse

from dgrctl.errors import UsageError
from dgrctl.layout import Layout


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the group to the command line."""
    parser = commands.add_parser("certify", help="certify a recipe on this machine and sign the evidence", allow_abbrev=False)
    parser.add_argument("--lane", required=True, help="the lane to certify")
    parser.add_argument("--recipe", required=True, help="a recipe's name or file")
    parser.add_argument("--lock", help="a lock's name or file; default: the newest version that fits lane and model")
    parser.add_argument("--storage", help="where models are kept")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=_certify)


def _certify(layout: Layout, arguments: argparse.Namespace) -> int:
    raise UsageError("certify is not written yet")
