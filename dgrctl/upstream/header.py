"""What a patch says about itself in its message: why it exists, what would let us drop it, and which files it owns.

The first two are prose and the last paragraph, of trailers; a line of a trailer that begins with a space continues it::

    stage: give a model a layer range

    A stage of a route owns the contiguous layers [begin, end) of a model …

    Drop-when: upstream can load and run a layer range of a model by itself.
    Owns: src/llama-hparams.cpp src/models/*.cpp
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

DROP_WHEN = "Drop-when"
OWNS = "Owns"

_TRAILER = re.compile(r"([A-Z][A-Za-z-]*): *(.*)")


@dataclass(frozen=True)
class Header:
    """A message, read.

    Attributes:
        why: The prose between subject and trailers.
        drop_when: What each ``Drop-when:`` says; there should be one.
        owns: The patterns of all ``Owns:``: paths from the root of the tree, in which ``*``, ``?`` and ``[…]`` match any
            characters, "/" included.
    """

    why: str
    drop_when: tuple[str, ...]
    owns: tuple[str, ...]

    def disowned(self, paths: Iterable[str]) -> list[str]:
        """The ``paths`` that no pattern matches."""
        return [path for path in paths if not any(fnmatchcase(path, pattern) for pattern in self.owns)]

    def idle(self, paths: Iterable[str]) -> list[str]:
        """The patterns that match none of ``paths``."""
        known = list(paths)
        return [pattern for pattern in self.owns if not any(fnmatchcase(path, pattern) for path in known)]


def read_header(message: str) -> Header:
    """Reads a patch's message; what it lacks is empty."""
    paragraphs = [part.strip("\n") for part in re.split(r"\n{2,}", message.partition("\n")[2].strip("\n")) if part.strip()]
    trailers: list[tuple[str, str]] = []
    if paragraphs and all(_TRAILER.match(line) or line.startswith(" ") for line in paragraphs[-1].splitlines()):
        trailers = list(_trailers(paragraphs.pop().splitlines()))
    return Header(
        why="\n\n".join(paragraphs),
        drop_when=tuple(value for name, value in trailers if name == DROP_WHEN and value),
        owns=tuple(pattern for name, value in trailers if name == OWNS for pattern in value.split()),
    )


def _trailers(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, value = "", ""
    for line in lines:
        found = _TRAILER.match(line)
        if found is None:
            value = f"{value} {line.strip()}"
            continue
        if name:
            yield name, value.strip()
        name, value = found.groups()
    if name:
        yield name, value.strip()
