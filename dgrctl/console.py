"""stderr carries people, stdout carries data.

Progress is a bar on a terminal and a line at the start and end of each step elsewhere, so that a log file stays readable.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dgrctl.errors import DgrError
from dgrctl.files import storage_errors

stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """One line for people."""
    stderr.print(escape(message))


def emit_json(document: object, *, one_line: bool = False) -> None:
    """One JSON document on stdout, and nothing else; on one line where more may follow later."""
    with storage_errors(Path("standard output")):
        json.dump(document, sys.stdout, indent=None if one_line else 2, ensure_ascii=False, sort_keys=False)
        sys.stdout.write("\n")
        sys.stdout.flush()


def show_error(error: DgrError) -> None:
    """An error as a person reads it: what, where, detail, what to do."""
    stderr.print(f"[bold red]error:[/] {escape(error.what)}")
    if error.where:
        stderr.print(f"  where: {escape(error.where)}")
    if error.detail:
        for line in error.detail.rstrip().splitlines():
            stderr.print(f"  | {escape(line)}")
    if error.remedy:
        stderr.print(f"  do:    {escape(error.remedy)}")


@contextlib.contextmanager
def progress(title: str, *, total: int | None = None, unit: str = "steps") -> Iterator[Callable[[int, int | None], None]]:
    """Shows one step's progress.

    Yields:
        ``update(done, total)``: absolute counts; ``total`` None leaves it as it is. ``unit`` "bytes" prints sizes.
    """
    started = time.monotonic()
    if not stderr.is_terminal:
        note(f"{title} …")
        yield lambda done, new_total: None
        note(f"{title}: done in {time.monotonic() - started:.1f} s")
        return
    counter = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counter, TimeElapsedColumn())
    with Progress(*columns, console=stderr) as bars:
        task = bars.add_task(escape(title), total=total)

        def update(done: int, new_total: int | None) -> None:
            bars.update(task, completed=done, total=new_total if new_total is not None else total)

        yield update


@contextlib.contextmanager
def waiting_row(title: str) -> Iterator[None]:
    """On a terminal, a row with the time that goes on for the block; elsewhere nothing."""
    if not stderr.is_terminal:
        yield
        return
    with Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=stderr, transient=True) as rows:
        rows.add_task(escape(title), total=None)
        yield
