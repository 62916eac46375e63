"""Replacing several files of a folder as one change.

The new files are written to a folder inside, which is renamed when it is complete: the point of no return. Before it a failure or
a kill leaves the old files; after it :func:`recover` finishes what is left to do, which is renames only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from dgrctl.errors import IntegrityError
from dgrctl.files import storage_errors, sync_folder

_PREPARING = ".replacing.partial"
_DECIDED = ".replacing"
_REMOVALS = "removals.json"


def replacement_pending(folder: Path) -> bool:
    """Whether a replacement was decided but not finished."""
    return (folder / _DECIDED).is_dir()


def replace_files(folder: Path, files: dict[str, bytes], obsolete: Iterable[str]) -> None:
    """Writes ``files`` (name to content) into ``folder`` and removes ``obsolete`` from it: all or nothing.

    Raises:
        StorageError: the disk is full or read-only; the old files are unchanged.
    """
    with storage_errors(folder):
        recover(folder)
        preparing = folder / _PREPARING
        try:
            preparing.mkdir(parents=True)
            for name, data in files.items():
                _write(preparing / name, data)
            _write(preparing / _REMOVALS, json.dumps(sorted(obsolete)).encode())
            sync_folder(preparing)
        except BaseException:
            shutil.rmtree(preparing, ignore_errors=True)
            raise
        preparing.rename(folder / _DECIDED)
        sync_folder(folder)
        recover(folder)


def recover(folder: Path) -> None:
    """Throws away a replacement that was not decided, and finishes one that was."""
    with storage_errors(folder):
        if (folder / _PREPARING).is_dir():
            shutil.rmtree(folder / _PREPARING)
        if not replacement_pending(folder):
            return
        decided = folder / _DECIDED
        removals = _read_removals(decided / _REMOVALS)
        for path in sorted(decided.iterdir()):
            if path.name != _REMOVALS:
                path.replace(folder / path.name)
        for name in removals:
            (folder / name).unlink(missing_ok=True)
        sync_folder(folder)
        shutil.rmtree(decided)


def _read_removals(path: Path) -> list[str]:
    """The names to remove; none if a kill came between the removal of this list and of its folder."""
    try:
        names = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise IntegrityError(
            "the list of files to remove was changed", where=str(path), remedy=f"remove {path.parent} and run dgrctl patch export"
        )
    return names


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
