"""Replacing several files of a folder, and the upstream manifest with them, as one change.

The new files are written to a folder inside, which is renamed when it is complete: the point of no return. Before it a failure or
a kill leaves the old files; after it :func:`recover` finishes what is left to do: renames, and the manifest's one write.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from dgrctl.errors import IntegrityError
from dgrctl.files import storage_errors, sync_folder
from dgrctl.layout import Layout

_PREPARING = ".replacing.partial"
_DECIDED = ".replacing"
_REMOVALS = "removals.json"
# The manifest's name while it waits; no patch is called so.
_MANIFEST = "upstream-manifest.toml"


def replacement_pending(folder: Path) -> bool:
    """Whether a replacement was decided but not finished."""
    return (folder / _DECIDED).is_dir()


def replace_files(layout: Layout, files: dict[str, bytes], obsolete: Iterable[str], *, manifest: bytes | None = None) -> None:
    """Writes ``files`` (name to content) into the patch folder, removes ``obsolete`` from it, and writes ``manifest`` (None: it
    stays as it is) to the upstream manifest: all or nothing.

    Raises:
        StorageError: the disk is full or read-only; the old files are unchanged.
    """
    folder = layout.patches
    with storage_errors(folder):
        recover(layout)
        preparing = folder / _PREPARING
        try:
            preparing.mkdir(parents=True)
            for name, data in files.items():
                _write(preparing / name, data)
            if manifest is not None:
                _write(preparing / _MANIFEST, manifest)
                # Nothing is decided that could not be finished.
                _write(_beside(layout.upstream_manifest), manifest)
            _write(preparing / _REMOVALS, json.dumps(sorted(obsolete)).encode())
            sync_folder(preparing)
        except BaseException:
            shutil.rmtree(preparing, ignore_errors=True)
            with contextlib.suppress(OSError):
                _beside(layout.upstream_manifest).unlink(missing_ok=True)
            raise
        preparing.rename(folder / _DECIDED)
        sync_folder(folder)
        recover(layout)


def recover(layout: Layout) -> None:
    """Throws away a replacement that was not decided, and finishes one that was."""
    folder = layout.patches
    with storage_errors(folder):
        if (folder / _PREPARING).is_dir():
            shutil.rmtree(folder / _PREPARING)
        if not replacement_pending(folder):
            _beside(layout.upstream_manifest).unlink(missing_ok=True)
            return
        decided = folder / _DECIDED
        removals = _read_removals(decided / _REMOVALS)
        for path in sorted(decided.iterdir()):
            if path.name not in (_REMOVALS, _MANIFEST):
                path.replace(folder / path.name)
        for name in removals:
            (folder / name).unlink(missing_ok=True)
        if (decided / _MANIFEST).exists():
            _write(_beside(layout.upstream_manifest), (decided / _MANIFEST).read_bytes())
            _beside(layout.upstream_manifest).replace(layout.upstream_manifest)
            sync_folder(layout.upstream_manifest.parent)
            (decided / _MANIFEST).unlink()
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


def _beside(target: Path) -> Path:
    """Where a file is written before it takes its place; one name, so that a kill leaves nothing that is not found again."""
    return target.with_name(f".{target.name}.partial")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
