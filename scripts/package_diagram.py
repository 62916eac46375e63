"""Draws the packages of dgrctl and who imports whom, from the imports themselves, as a Mermaid diagram in docs/architecture.md.

    python scripts/package_diagram.py           prints the diagram
    python scripts/package_diagram.py --write   writes it into the page

An arrow means: imports. An import that a longer way of arrows implies is left out, so that the picture stays readable. What
every package may import (errors, files, console and their like) is left out, too; the contract in pyproject.toml names it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grimp

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BEGIN = "<!-- Drawn by scripts/package_diagram.py. Do not edit. -->\n"
END = "<!-- End of the drawing. -->\n"


def packages() -> dict[str, set[str]]:
    """The packages of dgrctl by name, each with those that it imports."""
    graph = grimp.build_graph("dgrctl", cache_dir=None)
    rooms = {module for module in graph.find_children("dgrctl") if graph.find_children(module)}
    return {
        _name(room): {
            _name(other)
            for other in rooms - {room}
            if graph.direct_import_exists(importer=room, imported=other, as_packages=True)
        }
        for room in rooms
    }


def diagram(imports: dict[str, set[str]]) -> str:
    """``imports`` as Mermaid; names and arrows are sorted."""
    arrows = [f"  {room} --> {other}" for room in sorted(imports) for other in sorted(_shown(room, imports))]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"]) + "\n"


def _shown(room: str, imports: dict[str, set[str]]) -> set[str]:
    implied = {far for near in imports[room] for far in _reachable(near, imports)}
    return imports[room] - implied


def _reachable(room: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(imports[room])
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += imports[other]
    return found


def _name(module: str) -> str:
    return module.removeprefix("dgrctl.")


def page_with(drawing: str, page: str) -> str:
    """``page`` with ``drawing`` between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has lost its marks {BEGIN!r} and {END!r}")
    return f"{head}{BEGIN}\n{drawing}\n{END}{tail}"


if __name__ == "__main__":
    drawn = diagram(packages())
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page_with(drawn, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(drawn, end="")
