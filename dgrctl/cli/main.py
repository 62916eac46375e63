"""``dgrctl``: builds the parser from the command groups and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dgrctl import __version__
from dgrctl.console import emit_json, note, show_error
from dgrctl.errors import DgrError, StorageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.termination import orderly_termination

# In the order a release engineer meets them.
GROUPS = ("fetch", "patch", "build", "arch", "model", "recipe", "worker", "run", "certify", "keys", "evidence", "matrix")


def parser(groups: Sequence[str] = GROUPS) -> argparse.ArgumentParser:
    """The command line with the named groups; each brings only the modules that it needs."""
    top = argparse.ArgumentParser(
        prog="dgrctl", description="Run one GGUF model across machines, and prove it.", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"dgrctl {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for group in groups:
        importlib.import_module(f"dgrctl.cli.{group}").register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the process's exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Data is UTF-8 whatever the locale says; bytes of a file name that are no UTF-8 come out as JSON's own escapes.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    arguments = parser(words[:1] if words and words[0] in GROUPS else GROUPS).parse_args(words)
    try:
        with storage_errors(Path("standard output")), orderly_termination():
            code = int(arguments.run(Layout.find(), arguments))
            sys.stdout.flush()
            return code
    except DgrError as error:
        return _report(error, as_json=getattr(arguments, "json", False))
    except KeyboardInterrupt:
        note("interrupted; what is complete is kept, the same command continues")
        return 130
    except BrokenPipeError:
        _abandon_stdout()
        return 141


def _report(error: DgrError, *, as_json: bool) -> int:
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
