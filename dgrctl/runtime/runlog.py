"""A folder for each run with the logs of its processes. The newest are kept, and those of runs under way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dgrctl.files import storage_errors
from dgrctl.layout import Layout

KEPT_RUNS = 20
_TAIL_BYTES = 8 * 1024
_TAIL_LINES = 12
_OWNER = ".in-use"


@contextlib.contextmanager
def run_folder(layout: Layout) -> Iterator[Path]:
    """Makes a folder below ``layout.runs`` for the block, and removes the oldest ones beyond :data:`KEPT_RUNS`.

    Raises:
        StorageError: the disk is full or read-only.
    """
    with storage_errors(layout.runs):
        name = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{secrets.token_hex(3)}"
        folder = layout.runs / name
        folder.mkdir(parents=True)
        descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _prune(layout.runs)
        yield folder
    finally:
        os.close(descriptor)


def _prune(runs: Path) -> None:
    folders = sorted((path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()), key=lambda path: path.name)
    for folder in folders[:-KEPT_RUNS]:
        if not _in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _in_use(folder: Path) -> bool:
    """Whether the run's owner still lives: the kernel drops its lock with it."""
    try:
        descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def tail(log: Path | None) -> str | None:
    """The last lines of a log, for an error's detail; None if there are none."""
    if log is None:
        return None
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return "\n".join(lines[-_TAIL_LINES:]) or None
