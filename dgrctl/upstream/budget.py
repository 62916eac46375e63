"""How large the stack may be. Upstream moves daily: every changed line costs at every bump, so lines are counted and bounded.

Counted are added plus removed lines. A file that serves one model architecture counts for that architecture, everything else
for the core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dgrctl.upstream.patchfile import FileChange

CORE = "core"
CORE_LINES = 249
ARCHITECTURE_LINES = 6
# DeepSeek V4 keeps several caches of its own, each with its layer ranges.
EXCEPTIONS = {"deepseek4": 40}

_MODEL_FILE = re.compile(r"src/models/([a-z0-9_-]+)\.cpp\Z")
_V4_CACHE = re.compile(r"src/llama-kv-cache-dsv4[a-z0-9-]*\.(h|cpp)\Z")


def owner_of(path: str) -> str:
    """The architecture that ``path`` belongs to, or "core"."""
    if _V4_CACHE.match(path):
        return "deepseek4"
    model = _MODEL_FILE.match(path)
    return model.group(1) if model else CORE


def limit_of(owner: str) -> int:
    """The changed lines that "core" or an architecture may have."""
    return CORE_LINES if owner == CORE else EXCEPTIONS.get(owner, ARCHITECTURE_LINES)


def changed_lines(changes: Iterable[FileChange]) -> dict[str, int]:
    """Changed lines by owner: "core" always and first, then the architectures by name."""
    counts: dict[str, int] = {}
    for change in changes:
        owner = owner_of(change.path)
        counts[owner] = counts.get(owner, 0) + change.added + change.removed
    core = counts.pop(CORE, 0)
    return {CORE: core} | dict(sorted(counts.items()))
