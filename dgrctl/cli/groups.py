"""The top of the command line: every group's name and summary, so that help needs none of the groups' modules."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from dgrctl import __version__
from dgrctl.cli.help import show_help
from dgrctl.cli.options import Json
from dgrctl.errors import UsageError
from dgrctl.layout import Layout
from dgrctl.nearest import suggest

if TYPE_CHECKING:
    from typer._click import Command

PREPARE, MODELS, PROVE = "Build the programs", "Run models", "Prove what they do"

# In the order in which a release engineer meets them, panel by panel.
GROUPS = {
    "fetch": (PREPARE, "Fetch llama.cpp at the pin, and prove that it is that commit."),
    "patch": (PREPARE, "Apply, edit, export, check and bump the patch stack."),
    "build": (PREPARE, "Build the worker and the reference of one lane."),
    "model": (MODELS, "Pull, list, verify and make models."),
    "recipe": (MODELS, "Check a recipe, or compute a placement for given machines."),
    "run": (MODELS, "Stream an answer through a local or a running route."),
    "worker": (MODELS, "Start one stage of a recipe by hand."),
    "arch": (PROVE, "Show which architectures can be split, and certify them."),
    "certify": (PROVE, "Certify a recipe on this machine, and sign the evidence."),
    "bench": (PROVE, "Measure the split against the whole model, and the cost of one hop."),
    "keys": (PROVE, "Make or show the key that signs evidence on this machine."),
    "evidence": (PROVE, "Show and verify signed evidence and the ledger."),
    "matrix": (PROVE, "Show which lane, device, model and recipe may be advertised."),
}


class NearestGroup(TyperGroup):
    """A group that answers an unknown command with the nearest one."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:  # type: ignore[override]
        """The command that ``args`` begin with.

        Raises:
            UsageError: there is no such command.
        """
        name = args[0]
        if name in self.commands:
            return name, _quick(self.loaded(name), ctx), args[1:]
        if ctx.resilient_parsing:
            return None, None, args[1:]
        raise UsageError(
            f"{ctx.command_path} has no command {name!r}",
            where=ctx.get_usage().removeprefix("Usage: "),
            remedy=suggest(name, list(self.commands), f"{ctx.command_path} --help lists the commands"),
        )

    def loaded(self, name: str) -> Command:
        """The command of that name."""
        return self.commands[name]


class LazyGroup(NearestGroup):
    """The top group: it imports the module of a command only when that command is called."""

    def __init__(self, **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]
        for name, (panel, summary) in GROUPS.items():
            self.add_command(TyperCommand(name, help=summary, rich_help_panel=panel))

    def loaded(self, name: str) -> Command:
        """The command of that name, from its module."""
        app: typer.Typer = importlib.import_module(f"dgrctl.cli.{name}").app
        command = typer.main.get_command(app)
        command.name = name
        return command


app = typer.Typer(
    name="dgrctl",
    cls=LazyGroup,
    help="Run one GGUF model across machines, and prove it. dgrctl alone shows where you stand.",
    add_completion=True,
    context_settings={"help_option_names": ["--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dgrctl {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    ctx: typer.Context,
    as_json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True, metavar="")
    ] = False,
) -> int:
    del version
    return 0 if ctx.invoked_subcommand else _show_standing(as_json=as_json)


def _show_standing(*, as_json: bool) -> int:
    from dgrctl.console import emit_json, note
    from dgrctl.report.standing import standing

    found = standing(Layout.find())
    if as_json:
        emit_json(asdict(found))
        return 0
    for step in found.steps:
        print(f"{step.name:10} {', '.join(step.there) or 'nothing'}")
    print(f"next       {found.next}", flush=True)
    note("not verified: this looks at names and sizes alone; dgrctl --help lists the commands")
    return 0


def command_line() -> Command:
    """The whole command line, ready to run."""
    command = typer.main.get_command(app)
    return _quick(command, typer.Context(command, info_name="dgrctl"))


def _quick(command: Command, ctx: typer.Context) -> Command:
    """Mends what is slow in the flags that Typer makes itself.

    Help is printed without Typer's panels, and the default is False: pydantic coerces None, and pydantic is slow to load.
    """
    for parameter in (*command.params, command.get_help_option(ctx)):
        if parameter is not None and parameter.name in ("help", "install_completion", "show_completion"):
            parameter.default = False
            if parameter.name == "help":
                parameter.callback = show_help
    return command
