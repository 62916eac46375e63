"""One holder at a time for each part of ``.dgr/``, and a name for whoever has to be waited for.

The lock itself is flock(2): the kernel drops it when its holder dies, so a killed command leaves nothing stale. The owner
record beside it only serves the message to those who wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from dgrctl.files import storage_errors
from dgrctl.layout import Layout


@contextlib.contextmanager
def state_lock(layout: Layout, name: str, *, shared: bool = False, waiting: Callable[[str], None] | None = None) -> Iterator[int]:
    """Holds the lock ``name`` for the block, waiting for as long as another process has it.

    Args:
        name: What is locked: "upstream", "workspace", "build-cpu", "model-…", "certify".
        shared: Readers share; a writer excludes everybody.
        waiting: Told once, in a sentence, who holds the lock. Default: a line on stderr.

    Yields:
        The locked descriptor. A child that inherits it (``pass_fds``) holds the lock on until it has ended too, however this
        process ends: so nobody works on what a killed command's children still write.

    Raises:
        StorageError: the lock folder cannot be written.
    """
    with file_lock(layout.locks / f"{name}.lock", name, shared=shared, waiting=waiting) as descriptor:
        yield descriptor


@contextlib.contextmanager
def file_lock(path: Path, name: str, *, shared: bool = False, waiting: Callable[[str], None] | None = None) -> Iterator[int]:
    """Like :func:`state_lock`, on a lock file of one's own: for what several checkouts share, such as model storage."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"waiting for {_owner(path)}, which holds the lock '{name}'"
            (waiting or _say)(message)
            fcntl.flock(descriptor, mode)
        if shared:
            yield descriptor
            return
        _record_owner(descriptor)
        yield descriptor
        # So a record that stands names a holder, or one that died holding.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _record_owner(descriptor: int) -> None:
    record = {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "command": " ".join(["dgrctl", *sys.argv[1:]]),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # On a full disk the lock holds all the same; only its message to those who wait is poorer.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)


def _owner(path: Path) -> str:
    try:
        record = json.loads(path.read_bytes())
        owner = f"process {record['pid']} ({record['command']}, since {record['since']})"
        if record["host"] == os.uname().nodename and not _lives(int(record["pid"])):
            return f"what {owner} left running when it ended"
    except (OSError, ValueError, KeyError, TypeError):
        return _reader(path)
    return owner


def _reader(path: Path) -> str:
    """One of those who share the lock, and so leave no record: as the kernel lists them (proc_locks(5)), where there is /proc."""
    try:
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and int(fields[5].rpartition(":")[2]) == inode:
                # Program and script come first; what was asked of them follows.
                words = Path(f"/proc/{fields[4]}/cmdline").read_text().split("\0")[:-1]
                return f"process {fields[4]} ({' '.join([Path(word).name for word in words[:2]] + words[2:])})"
    except (OSError, ValueError, IndexError):
        pass
    return "another process"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
