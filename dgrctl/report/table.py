"""Tables on stdout: aligned text without rules or colours, so that they survive a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints ``rows`` below ``headings``; columns that hold nothing but numbers are aligned to the right."""
    columns = list(zip(headings, *rows, strict=True)) if rows else [(heading,) for heading in headings]
    widths = [max(len(cell) for cell in column) for column in columns]
    numeric = [bool(rows) and all(_is_number(cell) for cell in column[1:]) for column in columns]
    for row in (headings, *rows):
        cells = (
            cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.flush()


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("%", "").isdigit()
