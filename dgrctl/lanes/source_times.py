"""Files that are dated in the future: Ninja would configure for ever, because such a file always looks newer than the build."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from dgrctl.console import note
from dgrctl.errors import BuildError
from dgrctl.lanes.cmake import configured_from


def remove_future_times(trees: Iterable[Path]) -> None:
    """Gives every file in ``trees`` that is dated in the future the present time. Its content stays.

    Raises:
        BuildError: a file's time cannot be changed; names the file.
    """
    now = time.time()
    changed: list[Path] = []
    for tree in trees:
        for folder, folders, files in os.walk(tree):
            if ".git" in folders:
                folders.remove(".git")
            for path in (Path(folder, name) for name in files):
                try:
                    if path.lstat().st_mtime <= now:
                        continue
                    os.utime(path, (now, now), follow_symlinks=False)
                except FileNotFoundError:
                    continue  # Somebody removed it since.
                except OSError as error:
                    raise _in_the_future(path) from error
                changed.append(path)
    if changed:
        note(f"files dated in the future have the present time now: {len(changed)} of the sources, such as {changed[0]}")


def refuse_newer_inputs(folder: Path, source: Path) -> None:
    """Refuses a configured ``folder`` of which an input outside the sources, such as a CMake module, is dated in the future.

    Args:
        source: The source folder that CMake was given.

    Raises:
        BuildError: names the file.
    """
    now = time.time()
    for path in configured_from(folder, source):
        try:
            newer = path.stat().st_mtime > now
        except OSError:
            continue  # Ninja names a missing input itself.
        if newer:
            raise _in_the_future(path)


def _in_the_future(path: Path) -> BuildError:
    return BuildError(
        "this file is dated in the future, so the build would configure again and again",
        where=str(path),
        remedy=f"correct the clock (date), or give the file the present time: touch {path}",
    )
