"""``dgrctl worker``: one worker by hand."""

from __future__ import annotations

import argparse

from dgrctl.console import emit_json, note
from dgrctl.layout import Layout
from dgrctl.runtime.byhand import Started, serve_by_hand


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``worker`` and its subcommands."""
    group = commands.add_parser("worker", help="start one stage of a recipe by hand", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    start = actions.add_parser("start", help="run one stage in the foreground until Ctrl-C or SIGTERM", allow_abbrev=False)
    start.add_argument("--recipe", required=True, help="a recipe's name or file")
    start.add_argument("--stage", required=True, type=int, metavar="N", help="which stage, from 0, the head")
    start.add_argument("--listen", required=True, metavar="HOST:PORT", help="where to serve; port 0 picks a free one")
    start.add_argument("--storage", help="where models are kept")
    start.add_argument("--json", action="store_true", help="print one line of JSON, not only the address, when ready")
    start.set_defaults(run=_start)


def _start(layout: Layout, arguments: argparse.Namespace) -> int:
    def announce(started: Started) -> None:
        if started.exposed:
            note("warning: other machines can connect, and nothing on this port is encrypted or authenticated")
        note(f"stage {started.stage} of {started.recipe} serves on {started.address}; Ctrl-C ends it")
        if arguments.json:
            emit_json(started.as_dict(), one_line=True)
        else:
            print(started.address, flush=True)

    serve_by_hand(
        layout, arguments.recipe, arguments.stage, listen=arguments.listen, storage=arguments.storage, announce=announce
    )
    return 0
