"""``dgrctl fetch``: brings upstream at the pin, proven."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from dgrctl.console import emit_json, note
from dgrctl.layout import Layout
from dgrctl.upstream.fetch import fetch


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``fetch``."""
    parser = commands.add_parser("fetch", help="fetch llama.cpp at the pin, and prove that it is that commit")
    parser.add_argument("--transport", metavar="NAME", help="use only this transport of the manifest (git, sdist)")
    parser.add_argument("--from", dest="source", type=Path, metavar="PATH", help="use this bundle or clone of yours")
    parser.add_argument("--force", action="store_true", help="fetch anew and replace what is there, changed or not")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    parser.set_defaults(run=_fetch)


def _fetch(layout: Layout, arguments: argparse.Namespace) -> int:
    result = fetch(layout, transport=arguments.transport, source=arguments.source, force=arguments.force)
    if arguments.json:
        emit_json(asdict(result))
    if result.changed:
        note(f"fetched commit {result.commit}, tree {result.tree}, by {result.transport}; every byte proven")
    else:
        note(f"nothing to do: commit {result.commit} is there, every byte proven")
    return 0
