"""The lane matrix for people."""

from __future__ import annotations

from dgrctl.evidence.matrix import Matrix, Row
from dgrctl.report.table import print_table

_HEADINGS = ("lane", "status", "device", "model", "recipe", "trust", "reason")
_BOLD_GREEN = "1;32"


def print_matrix(matrix: Matrix, *, wide: bool = False) -> None:
    """Prints the rows on stdout."""
    print_table(_HEADINGS, [_cells(row) for row in matrix.rows], wide=wide, colours={"advertisable": _BOLD_GREEN})


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(cell or "-" for cell in (row.lane, row.status, row.device, row.model, row.recipe, row.trust, row.reason))
