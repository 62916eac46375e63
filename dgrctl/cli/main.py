"""``dgrctl``: runs what was typed, and turns errors into messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer.core import TyperOption
from typer.exceptions import Exit, TyperException

from dgrctl.cli.groups import command_line
from dgrctl.errors import DgrError, StorageError, UsageError
from dgrctl.files import storage_errors
from dgrctl.nearest import suggest
from dgrctl.termination import orderly_termination

if TYPE_CHECKING:
    from typer._click import Command, Context, Parameter

_COMPLETE = "_DGRCTL_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the process's exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Data is UTF-8 whatever the locale says; bytes of a file name that are no UTF-8 come out as JSON's own escapes.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    words = list(sys.argv[1:] if argv is None else argv)
    command = command_line()
    if os.environ.get(_COMPLETE):
        command.main(words, prog_name="dgrctl", complete_var=_COMPLETE)
    try:
        with storage_errors(Path("standard output")), orderly_termination():
            code = _run(command, words)
            sys.stdout.flush()
            return code
    except DgrError as error:
        return _report(error, as_json=_asks_for_json(words))
    except KeyboardInterrupt:
        from dgrctl.console import note

        note("interrupted; what is complete is kept, the same command continues")
        return 130
    except BrokenPipeError:
        _abandon_stdout()
        return 141


def _run(command: Command, words: list[str]) -> int:
    # The command's own main() would end the process, and it would take interrupts and broken pipes for itself.
    try:
        with command.make_context("dgrctl", words) as context:
            return int(command.invoke(context) or 0)
    except Exit as ending:
        return ending.exit_code
    except TyperException as error:
        raise _usage_error(error) from error


def _usage_error(error: TyperException) -> UsageError:
    """What the parser refused, in our own words."""
    context: Context | None = getattr(error, "ctx", None)
    if context is None:
        return UsageError(error.format_message(), remedy="dgrctl --help lists the commands")
    path = context.command_path
    remedy = f"{path} --help shows what it takes"
    parameter: Parameter | None = getattr(error, "param", None)
    option: str | None = getattr(error, "option_name", None)
    kind = type(error).__name__
    if kind == "NoSuchOption" and option is not None:
        names = [name for each in context.command.get_params(context) for name in each.opts]
        what, remedy = f"{path} has no option {option}", suggest(option, names, remedy)
    elif kind == "MissingParameter" and parameter is not None:
        what = f"{_name(parameter)} is missing"
    elif parameter is not None:
        what = f"{_name(parameter)} cannot be used: {error.message}"
    else:
        what = error.format_message().rstrip(".")
    return UsageError(what, where=context.get_usage().removeprefix("Usage: "), remedy=remedy)


def _name(parameter: Parameter) -> str:
    if isinstance(parameter, TyperOption):
        return f"the option {parameter.opts[0]}"
    return f"the argument {parameter.metavar or parameter.name}"


def _asks_for_json(words: Sequence[str]) -> bool:
    """True where --json stands among the words, before what ``--`` hands on."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own


def _report(error: DgrError, *, as_json: bool) -> int:
    from dgrctl.console import emit_json, show_error

    show_error(error)
    try:
        if as_json:
            emit_json(error.as_dict())
        sys.stdout.flush()
    except (StorageError, OSError):
        _abandon_stdout()
    return error.exit_code


def _abandon_stdout() -> None:
    """Nothing more can be told to stdout: its reader went away or its disk is full. What is buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
