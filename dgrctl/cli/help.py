"""The help of every command, in panels. Typer's own panels load Markdown and syntax highlighting first, which is slow."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperGroup, TyperOption

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from typer._click import Context, Parameter

_ARGUMENTS, _OPTIONS, _COMMANDS = "Arguments", "Options", "Commands"


def show_help(ctx: Context, option: Parameter, asked: bool) -> None:
    """Prints the help of the command that was typed, and ends it; what ``--help`` calls."""
    del option
    if not asked or ctx.resilient_parsing:
        return
    from rich.console import Console

    _print(ctx, Console(highlight=False))
    ctx.exit()


def _print(ctx: Context, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    command = ctx.command
    usage = Text(ctx.get_usage(), style="bold")
    usage.stylize("yellow", 0, len("Usage:"))
    console.print(Padding(usage, (1, 1)))
    first, *others = inspect.cleandoc(command.help or "").split("\n\n")
    console.print(Padding(Text(first.replace("\n", " ")), (0, 1, 1, 1)))
    for paragraph in others:
        console.print(Padding(Text(paragraph, style="dim"), (0, 1, 1, 1)))
    for title, rows in _panels(ctx).items():
        _print_panel(console, title, rows)
    if command.epilog:
        console.print(Padding(Text(command.epilog.replace("\n\n", "\n")), (1, 1)))


def _panels(ctx: Context) -> dict[str, list[tuple[Text, Text]]]:
    """The rows of each panel: arguments first, then options, then commands."""
    arguments: dict[str, list[tuple[Text, Text]]] = {_ARGUMENTS: []}
    options: dict[str, list[tuple[Text, Text]]] = {_OPTIONS: []}
    for parameter in ctx.command.get_params(ctx):
        if isinstance(parameter, TyperArgument) and not parameter.hidden:
            arguments.setdefault(parameter.rich_help_panel or _ARGUMENTS, []).append(_parameter(ctx, parameter))
        elif isinstance(parameter, TyperOption) and not parameter.hidden:
            options.setdefault(parameter.rich_help_panel or _OPTIONS, []).append(_parameter(ctx, parameter))
    commands: defaultdict[str, list[tuple[Text, Text]]] = defaultdict(list)
    if isinstance(ctx.command, TyperGroup):
        from rich.text import Text

        width = max((len(name) for name in ctx.command.commands), default=0)
        for name, each in ctx.command.commands.items():
            summary = inspect.cleandoc(each.help or "").split("\n\n")[0].replace("\n", " ")
            panel: str | None = getattr(each, "rich_help_panel", None)
            commands[panel or _COMMANDS].append((Text(name.ljust(width), style="bold cyan"), Text(summary)))
    return {title: rows for panels in (arguments, options, commands) for title, rows in panels.items() if rows}


def _parameter(ctx: Context, parameter: TyperArgument | TyperOption) -> tuple[Text, Text]:
    """What is typed, and what it means."""
    from rich.text import Text

    value: str | None
    if isinstance(parameter, TyperArgument):
        typed, value = Text(), parameter.metavar or (parameter.name or "").upper()
        value += "..." if parameter.nargs == -1 else ""
    else:
        typed = Text(", ".join((*parameter.opts, *parameter.secondary_opts)), style="bold cyan")
        value = None if parameter.is_flag or parameter.name in _MADE_BY_TYPER else parameter.display_type_rich(ctx)
    if value:
        typed.append(f"{' ' if typed else ''}{value}", style="not bold yellow")
    meaning = Text(parameter.help or "")
    for remark, style in _remarks(ctx, parameter):
        meaning.append(f"{' ' if meaning else ''}{remark}", style=style)
    return typed, meaning


# Flags, though Typer gives the second and third of them a value.
_MADE_BY_TYPER = ("help", "install_completion", "show_completion")


def _remarks(ctx: Context, parameter: TyperArgument | TyperOption) -> list[tuple[str, str]]:
    remarks = []
    default = parameter._extract_default_help_str(ctx=ctx)
    if parameter.show_default and default is not None:
        text = parameter._get_default_string(ctx=ctx, show_default_is_str=False, default_value=default)
        if text:
            remarks.append((f"[default: {text}]", "dim"))
    if parameter.required:
        remarks.append(("[required]", "red"))
    return remarks


def _print_panel(console: Console, title: str, rows: Sequence[tuple[Text, Text]]) -> None:
    from rich.panel import Panel
    from rich.table import Table

    table = Table.grid(padding=(0, 2), pad_edge=False, expand=True)
    # What is typed is broken only where the terminal is too narrow for half of it.
    longest = max(len(typed.plain) for typed, _ in rows)
    table.add_column(min_width=min(longest, console.width // 2 - 4), overflow="fold")
    table.add_column(ratio=1)
    for typed, meaning in rows:
        table.add_row(typed, meaning)
    console.print(Panel(table, title=title, title_align="left", border_style="dim"))
