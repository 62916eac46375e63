"""Pages of the documentation that are generated: one Jinja2 template each, in ``templates/``."""

from __future__ import annotations

from collections import Counter
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from dgrctl.recipes.architectures import Roster


def architectures_page(roster: Roster) -> str:
    """docs/architectures.md for ``roster``."""
    counts = sorted(Counter(row.status for row in roster.architectures).items())
    return _environment().get_template("architectures.md.j2").render(roster=roster, counts=counts)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dgrctl.report"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - the pages are Markdown
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _cell
    return environment


def _cell(text: str) -> str:
    """``text`` as it stands in one cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
