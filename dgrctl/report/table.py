"""Tables of text without rules. They fit the terminal: long cells are folded, and a table too wide for that becomes records.

In a pipe, and with ``--wide``, every row is one line. The variable COLUMNS gives a width also to a pipe.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence

_GAP = "  "
_LONGEST_WORD = 14  # that a column of text has room for at least: identifiers longer than this may be broken


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool = False, colours: Mapping[str, str] | None = None
) -> None:
    """Prints ``rows`` below ``headings`` on stdout.

    Args:
        wide: One line for each row, however long.
        colours: Texts of cells, each with its SGR code, for a terminal that shows colours.
    """
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in table_lines(headings, rows, None if wide else _room(), colours if coloured else None):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, colours: Mapping[str, str] | None = None
) -> list[str]:
    """The lines of a table, none longer than ``width``. Columns that hold nothing but numbers are aligned to the right."""

    def painted(padded: str) -> str:
        code = (colours or {}).get(padded.strip())
        return padded.replace(padded.strip(), f"\x1b[{code}m{padded.strip()}\x1b[0m") if code else padded

    columns = list(zip(headings, *rows, strict=True)) if rows else [(heading,) for heading in headings]
    numeric = [bool(rows) and all(_is_number(cell) for cell in column[1:]) for column in columns]
    widths = [max(len(cell) for cell in column) for column in columns]
    if width is not None and not _narrow(widths, columns, numeric, width):
        return _records(headings, rows, width, painted)
    lines = []
    for row in (headings, *rows):
        folded = [_fold(cell, room) for cell, room in zip(row, widths, strict=True)]
        for number in range(max((len(cell) for cell in folded), default=0)):
            pieces = [cell[number] if number < len(cell) else "" for cell in folded]
            padded = (
                piece.rjust(room) if right else piece.ljust(room)
                for piece, room, right in zip(pieces, widths, numeric, strict=True)
            )
            lines.append(_GAP.join(painted(piece) for piece in padded).rstrip())
    return lines


def _room() -> int | None:
    """Columns of the terminal, or None where nothing limits a line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def _narrow(widths: list[int], columns: Sequence[Sequence[str]], numeric: Sequence[bool], width: int) -> bool:
    """Takes from the widest columns of text until the table fits; False where it cannot."""
    least = [
        room if right else max(len(column[0]), min(_LONGEST_WORD, _longest_word(column)))
        for room, column, right in zip(widths, columns, numeric, strict=True)
    ]
    gaps = len(_GAP) * (len(widths) - 1)
    if sum(least) + gaps > width:
        return sum(widths) + gaps <= width
    while sum(widths) + gaps > width:
        widest = max((index for index, room in enumerate(widths) if room > least[index]), key=widths.__getitem__)
        widths[widest] -= 1
    return True


def _longest_word(column: Sequence[str]) -> int:
    return max((len(word) for cell in column for word in cell.split()), default=0)


def _records(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, painted: Callable[[str], str]) -> list[str]:
    """Each row as lines of heading and cell, with an empty line between rows."""
    if not rows:
        return list(headings)
    margin = max(len(heading) for heading in headings) + len(_GAP)
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for heading, cell in zip(headings, row, strict=True):
            first, *others = _fold(cell, max(width - margin, _LONGEST_WORD), indent="")
            lines += [f"{heading:{margin}}{painted(first)}".rstrip(), *(" " * margin + other for other in others)]
    return lines


def _fold(cell: str, width: int, *, indent: str = " ") -> list[str]:
    """``cell`` in lines of at most ``width``. A line that continues a cell is indented, so that rows can be told apart."""
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, subsequent_indent=indent) or [""]


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("%", "").isdigit()
