"""``dgrctl run``: a prompt through a route, the answer on stdout."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from dgrctl.console import emit_json, note, progress
from dgrctl.errors import UsageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.runtime.address import parse_route
from dgrctl.runtime.answer import collect
from dgrctl.runtime.prepare import prepare
from dgrctl.runtime.question import ask
from dgrctl.runtime.route import LocalRoute, Route, RunningRoute


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``run``."""
    parser = commands.add_parser("run", help="stream an answer through a local or a running route", allow_abbrev=False)
    route = parser.add_mutually_exclusive_group(required=True)
    route.add_argument("--recipe", help="a recipe's name or file; its workers are started here and ended afterwards")
    route.add_argument("--route", metavar="HOST:PORT,…", help="workers that already run, in route order, head first")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="what to ask")
    prompt.add_argument("--prompt-file", metavar="FILE", help="where that stands, UTF-8; - is standard input")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="the most tokens to generate (default: 128)")
    parser.add_argument("--raw", action="store_true", help="tokenize the prompt as it stands, without the chat template")
    parser.add_argument("--storage", help="where models are kept (with --recipe)")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end instead of streamed text")
    parser.set_defaults(run=_run)


def _run(layout: Layout, arguments: argparse.Namespace) -> int:
    question = ask(arguments.prompt, arguments.prompt_file, max_tokens=arguments.max_tokens, raw=arguments.raw)
    with contextlib.ExitStack() as stack:
        route = _route(layout, arguments)
        with progress("Starting the route"):
            stack.enter_context(route)
        responses = route.generate(question.prompt, max_tokens=question.max_tokens)
        answer = collect(stack.enter_context(contextlib.closing(responses)), _ignore if arguments.json else _say)
    if arguments.json:
        stages = [
            {"index": stage.index, "layers": [stage.layers.begin, stage.layers.end], "address": stage.address}
            for stage in route.stages
        ]
        emit_json({**answer.as_dict(), "recipe": arguments.recipe, "stages": stages})
    elif sys.stdout.isatty():
        _say("\n")
    note(answer.summary())
    return 0


def _route(layout: Layout, arguments: argparse.Namespace) -> Route:
    if arguments.route is None:
        parts = prepare(layout, arguments.recipe, arguments.storage)
        return LocalRoute(layout, parts.recipe, parts.model, parts.build, parts.ranges)
    if arguments.storage is not None:
        raise UsageError("--storage has no meaning for workers that already run", remedy="leave --storage away")
    return RunningRoute(parse_route(arguments.route))


def _say(text: str) -> None:
    with storage_errors(Path("standard output")):
        sys.stdout.write(text)
        sys.stdout.flush()


def _ignore(text: str) -> None:
    del text
