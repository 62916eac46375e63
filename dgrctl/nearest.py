"""The nearest name to one that nobody knows, for the remedies of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that is most like ``word``; None if none is like it."""
    folded = {name.casefold(): name for name in names}
    found = difflib.get_close_matches(word.casefold(), folded, n=1)
    return folded[found[0]] if found else None


def suggest(word: str, names: Iterable[str], otherwise: str) -> str:
    """A remedy: the question whether the nearest name was meant, and ``otherwise``."""
    found = nearest(word, names)
    return otherwise if found is None else f"did you mean {found}? If not: {otherwise}"
