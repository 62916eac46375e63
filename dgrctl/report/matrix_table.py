"""The lane matrix for people: a table on a terminal, aligned text elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dgrctl.evidence.matrix import Matrix, Row
from dgrctl.report.table import print_table

_HEADINGS = ("lane", "status", "device", "model", "recipe", "trust", "reason")


def print_matrix(matrix: Matrix) -> None:
    """Prints the rows on stdout."""
    if not sys.stdout.isatty():
        print_table(_HEADINGS, [_cells(row) for row in matrix.rows])
        return
    table = Table(*_HEADINGS, show_lines=True)
    for row in matrix.rows:
        cells = [Text(cell) for cell in _cells(row)]
        cells[1].stylize("bold green" if row.status == "advertisable" else "dim")
        table.add_row(*cells)
    Console().print(table)


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(cell or "-" for cell in (row.lane, row.status, row.device, row.model, row.recipe, row.trust, row.reason))
