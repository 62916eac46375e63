"""``dgrctl run``: a prompt through a route, the answer on stdout."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgrctl.cli.options import Json, Storage, complete_recipes, exactly_one, examples
from dgrctl.errors import UsageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.runtime.route import Route

app = typer.Typer(add_completion=False)


@app.command(
    epilog=examples(
        'dgrctl run --recipe smollm2-135m.cpu-2stage --prompt "Name three colours."',
        "dgrctl run --route 127.0.0.1:7001,127.0.0.1:7002 --prompt-file question.txt",
    )
)
def run(
    ctx: typer.Context,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME|FILE",
            help="A recipe's name or file. Its workers are started here and ended afterwards.",
            autocompletion=complete_recipes,
            rich_help_panel="Route: one of these",
        ),
    ] = None,
    route: Annotated[
        str | None,
        typer.Option(
            "--route",
            metavar="HOST:PORT,...",
            help="Workers that already run, in route order, head first.",
            rich_help_panel="Route: one of these",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="What to ask.", rich_help_panel="Prompt: one of these")
    ] = None,
    prompt_file: Annotated[
        str | None,
        typer.Option(
            "--prompt-file",
            metavar="FILE",
            help="A UTF-8 file with the prompt. - is standard input.",
            rich_help_panel="Prompt: one of these",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="The most tokens to generate.")] = 128,
    raw: Annotated[
        bool, typer.Option("--raw", help="Tokenize the prompt as it stands, without the chat template.", metavar="")
    ] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Stream an answer through a local or a running route.

    With --json, one JSON object at the end replaces the streamed text.
    """
    exactly_one(ctx, {"--recipe": recipe, "--route": route})
    exactly_one(ctx, {"--prompt": prompt, "--prompt-file": prompt_file})
    from dgrctl.console import emit_json, note, progress
    from dgrctl.runtime.answer import collect
    from dgrctl.runtime.question import ask

    question = ask(prompt, prompt_file, max_tokens=max_tokens, raw=raw)
    with contextlib.ExitStack() as stack:
        used = _route(recipe, route, storage)
        with progress("Starting the route"):
            stack.enter_context(used)
        responses = used.generate(question.prompt, max_tokens=question.max_tokens)
        answer = collect(stack.enter_context(contextlib.closing(responses)), _ignore if as_json else _say)
    if as_json:
        stages = [
            {"index": stage.index, "layers": [stage.layers.begin, stage.layers.end], "address": stage.address}
            for stage in used.stages
        ]
        emit_json({**answer.as_dict(), "recipe": recipe, "stages": stages})
    elif sys.stdout.isatty():
        _say("\n")
    note(answer.summary())
    return 0


def _route(recipe: str | None, route: str | None, storage: str | None) -> Route:
    from dgrctl.runtime.address import parse_route
    from dgrctl.runtime.prepare import prepare
    from dgrctl.runtime.route import LocalRoute, RunningRoute

    if recipe is not None:
        layout = Layout.find()
        parts = prepare(layout, recipe, storage)
        return LocalRoute(layout, parts.recipe, parts.model, parts.build, parts.ranges)
    if storage is not None:
        raise UsageError("--storage has no meaning for workers that already run", remedy="leave --storage away")
    assert route is not None  # noqa: S101 - one of the two is there
    return RunningRoute(parse_route(route))


def _say(text: str) -> None:
    with storage_errors(Path("standard output")):
        sys.stdout.write(text)
        sys.stdout.flush()


def _ignore(text: str) -> None:
    del text
