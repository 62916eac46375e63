"""Looking for programs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def program(root: Path, name: str, *folders: str) -> Path | None:
    """The program ``name`` on PATH or in one of ``folders``, which are relative to ``root``; None if it is in none of them."""
    places = [str(root / folder) for folder in folders]
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *places]))
    return Path(found) if found else None
