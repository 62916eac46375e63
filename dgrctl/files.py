"""Files that are never half written, and digests of files that are."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dgrctl.errors import StorageError

_CHUNK = 4 * 1024 * 1024


@contextlib.contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Turns what a full, read-only or forbidden disk raises into a StorageError that names ``where``."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free space on that disk and run the same command again; what is complete is kept",
            errno.EDQUOT: "free space under that quota and run the same command again; what is complete is kept",
            errno.EROFS: "make that disk writable, or use a checkout on another one",
            errno.EACCES: "make that path readable and writable for this user",
            errno.EPERM: "make that path readable and writable for this user",
            errno.EFBIG: "lift the limit on the size of files (ulimit -f), or use a file system that takes larger ones",
            errno.EIO: "check that disk; what it returned cannot be relied upon",
        }
        if error.errno in remedies:
            path = error.filename if error.filename is not None else where
            raise StorageError(
                f"cannot read or write: {os.strerror(error.errno or 0)}", where=str(path), remedy=remedies[error.errno]
            ) from error
        raise


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces ``path`` by ``data`` so that a reader, or a kill at any point, sees the old bytes or the new, never a mixture.

    Raises:
        StorageError: the disk is full, read-only or forbidden; the old file is unchanged.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(mode)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


class NotARegularFileError(OSError):
    """A folder, pipe, socket or device stands where a file should."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """The first ``limit`` bytes of a regular file (None: all). It never waits, whatever stands at ``path``.

    Raises:
        NotARegularFileError: not a regular file. A device is not even opened.
        OSError: missing or unreadable.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotARegularFileError(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        # Another file may stand there since the first look.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotARegularFileError(path)
        return file.read(-1 if limit is None else limit)


def sync_folder(folder: Path) -> None:
    """Makes renames in ``folder`` survive a power failure."""
    """Makes renames and removals inside ``folder`` survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file, as lower-case hex. ``advance`` is told the number of bytes read since it was last called."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if advance is not None:
                advance(len(chunk))
    return digest.hexdigest()
