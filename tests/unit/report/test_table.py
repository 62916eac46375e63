"""Tables at several widths: nothing is lost, and no line is longer than the terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from dgrctl.report.table import table_lines

HEADINGS = ("NAME", "COUNT", "REASON")
ROWS = [
    ("llama", "1,234", "every cut computes what the whole computes, at every ubatch that was tried, and no value differs"),
    ("an-architecture-of-a-long-name", "7", "-"),
]


def test_without_a_limit_every_row_is_one_line() -> None:
    lines = table_lines(HEADINGS, ROWS, None)
    assert [line.split()[0] for line in lines] == ["NAME", "llama", "an-architecture-of-a-long-name"]
    assert lines[1].endswith(ROWS[0][2])


def test_numbers_stand_on_the_right() -> None:
    name, one, two = (line.split("  REASON")[0] for line in table_lines(HEADINGS, ROWS, None))
    assert one.index("1,234") + 5 == two.rindex("7") + 1
    assert len(name) == two.rindex("7") + 1


def test_at_200_columns_nothing_is_folded() -> None:
    assert table_lines(HEADINGS, ROWS, 200) == table_lines(HEADINGS, ROWS, None)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_long_cells_are_folded_and_nothing_is_lost(width: int) -> None:
    lines = table_lines(HEADINGS, ROWS, width)
    assert max(len(line) for line in lines) <= width
    assert lines[0].split() == list(HEADINGS)
    said = "".join("".join(lines).split())
    assert len(said) == len("".join("".join((*HEADINGS, *ROWS[0], *ROWS[1])).split()))
    rows = [line for line in lines[1:] if not line.startswith(" ")]
    assert len(rows) == len(ROWS)


def test_a_table_of_many_columns_becomes_records_at_60_columns() -> None:
    headings = ("lane", "status", "device", "model", "recipe", "trust", "reason")
    row = ("cpu", "advertisable", "a processor of a long name", "smollm2-135m", "smollm2-135m.cpu-2stage", "local key", "-")
    lines = table_lines(headings, [row, row], 60)
    assert lines[: len(row)] == [f"{heading:8}{cell}" for heading, cell in zip(headings, row, strict=True)]
    assert lines[len(row)] == ""
    assert lines[len(row) + 1 :] == lines[: len(row)]


def test_headings_alone_are_a_table() -> None:
    assert table_lines(HEADINGS, [], 60) == ["NAME  COUNT  REASON"]
    assert table_lines(HEADINGS, [], 8) == ["NAME", "COUNT", "REASON"]


PROGRAM = """
from dgrctl.report.table import print_table
print_table(("status", "reason"), [("advertisable", "word " * 30)], wide={wide}, colours={{"advertisable": "1;32"}})
"""


def printed(*, wide: bool = False, **environment: str) -> str:
    """What a process prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    try:
        command = [sys.executable, "-c", PROGRAM.format(wide=wide)]
        subprocess.run(command, stdout=theirs, env={**clean, "TERM": "xterm", **environment}, check=True, timeout=300)
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_colours_and_folded_lines() -> None:
    said = printed(COLUMNS="60")
    assert "\x1b[1;32madvertisable\x1b[0m" in said
    assert len(said.splitlines()) > 2


def test_no_color_holds() -> None:
    assert "\x1b" not in printed(COLUMNS="60", NO_COLOR="1")


def test_wide_keeps_a_row_on_one_line() -> None:
    assert len(printed(wide=True, COLUMNS="60").splitlines()) == 2


def test_a_pipe_gets_whole_lines_without_colours() -> None:
    clean = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-c", PROGRAM.format(wide=False)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean, check=True, timeout=300)
    assert len(done.stdout.splitlines()) == 2
    assert "\x1b" not in done.stdout
