"""What a patch says about itself is found where it stands, and nowhere else."""

from __future__ import annotations

import pytest

from dgrctl.upstream.header import Header, read_header


def test_prose_and_trailers() -> None:
    header = read_header(
        "s\n\nOne.\n\nTwo:\nmore.\n\nDrop-when: upstream can\n  do it.\nOwns: src/a.cpp src/b.cpp\nOwns: include/*.h\n"
    )
    assert header == Header("One.\n\nTwo:\nmore.", ("upstream can do it.",), ("src/a.cpp", "src/b.cpp", "include/*.h"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("s\n", Header("", (), ())),
        ("s\n\nOnly prose.\n", Header("Only prose.", (), ())),
        ("s\n\nOwns: a.cpp\n", Header("", (), ("a.cpp",))),
        ("s\n\nDrop-when:\nOwns:\n", Header("", (), ())),
        # A line that is no trailer makes its whole paragraph prose.
        ("s\n\nDrop-when: never\nOwns: a.cpp\nand more\n", Header("Drop-when: never\nOwns: a.cpp\nand more", (), ())),
        # Only the last paragraph counts.
        ("s\n\nOwns: a.cpp\n\nProse.\n", Header("Owns: a.cpp\n\nProse.", (), ())),
        ("s\n\nWhy.\n\nSigned-off-by: A\nOwns: a\n", Header("Why.", (), ("a",))),
    ],
)
def test_what_is_missing_is_empty(message: str, expected: Header) -> None:
    assert read_header(message) == expected


def test_patterns_match_whole_paths_and_are_checked_both_ways() -> None:
    header = Header("w", ("d",), ("src/models/*.cpp", "src/a.h"))
    assert header.disowned(["src/models/llama.cpp", "src/models/sub/x.cpp", "src/a.h"]) == []
    assert header.disowned(["src/models/llama.h", "xsrc/a.h", "src/A.h"]) == ["src/models/llama.h", "xsrc/a.h", "src/A.h"]
    assert header.idle(["src/a.h"]) == ["src/models/*.cpp"]
