"""One holder at a time for each part of ``.dgr/``, and words and a bound for whoever has to wait.

The lock itself is flock(2): the kernel drops it when its holder dies, so a killed command leaves nothing stale. Every wait goes
through :class:`Wait`: after two seconds it says what is waited for and who holds it, and it ends after :func:`longest_wait`.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from dgrctl.errors import LockedError, UsageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.lockholders import Holder, holders, write_record

LIMIT = "DGR_LOCK_SECONDS"
# A build or a certification takes minutes; what takes longer than this to wait for is better known of.
_DEFAULT_SECONDS = 3600.0
# A wait that is shorter than this is not spoken of, unless the holder cannot let go.
PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.05


def longest_wait() -> float:
    """The longest wait for any lock, in seconds: ``DGR_LOCK_SECONDS``, or an hour.

    Raises:
        UsageError: the variable is no such number.
    """
    text = os.environ.get(LIMIT, "")
    try:
        seconds = float(text) if text else _DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise UsageError(f"{LIMIT} is {text!r}", where=LIMIT, remedy="set it to a number of seconds, 0 or more; 0 never waits")
    return seconds


class Wait:
    """One wait for a lock: its words and its bound. A context manager.

    Call :meth:`tick` several times a second. The words go to ``say``, by default to a line on stderr; on a terminal a row with
    the time stands below it until the wait is over.

    Args:
        what: What is waited for: "the lock 'build-cpu'".
        path: The lock file.
        limit: The longest wait in seconds, where not :func:`longest_wait`.
    """

    def __init__(self, what: str, path: Path, say: Callable[[str], None] | None = None, *, limit: float | None = None) -> None:
        self._what = what
        self._path = path
        self._say = say
        self._limit = longest_wait() if limit is None else limit
        self._begun = time.monotonic()
        self._looked = -math.inf
        self._holders: list[Holder] = []
        self._told: set[str | None] = set()
        self._row = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Takes the row away."""
        self._row.close()

    def tick(self) -> None:
        """Says who holds the lock when it is time to.

        Raises:
            LockedError: the longest wait is over.
        """
        waited = time.monotonic() - self._begun
        over = waited >= self._limit
        if over or waited - self._looked >= _LOOK_SECONDS:
            self._looked = waited
            self._holders = holders(self._path)
        if over:
            raise self._error(waited)
        trouble = next((holder.trouble for holder in self._holders if holder.trouble), None)
        if trouble in self._told or (trouble is None and (self._told or waited < PATIENCE_SECONDS)):
            return
        self._told.add(trouble)
        self._tell()

    def _tell(self) -> None:
        (self._say or _note)(self._sentence())
        if self._say is None and len(self._told) == 1:
            self._row.enter_context(_waiting_row(f"Waiting for {self._what}"))

    def _sentence(self) -> str:
        named = " and ".join(map(str, self._holders)) or "another process"
        holds = "hold" if len(self._holders) > 1 else "holds"
        words = f"waiting for {named}, which {holds} {self._what}"
        for holder in self._holders:
            if holder.trouble:
                words += f"; process {holder.pid} may never let go: {holder.trouble}; {holder.remedy}"
        bound = f", and gives up after {self._limit:g} s" if math.isfinite(self._limit) else ""
        return f"{words}. This command goes on by itself when that is free{bound}."

    def _error(self, waited: float) -> LockedError:
        named = " and ".join(map(str, self._holders)) or "another process"
        troubles = [f"process {holder.pid}: {holder.trouble}" for holder in self._holders if holder.trouble]
        remedies = [holder.remedy for holder in self._holders if holder.remedy]
        return LockedError(
            f"{self._what} was not free within {waited:.0f} s: {named} {'hold' if len(self._holders) > 1 else 'holds'} it",
            where=str(self._path),
            detail="\n".join(troubles) or None,
            remedy="; ".join(remedies) or f"run the command again when that has ended, or wait longer: {LIMIT}=SECONDS",
            facts={
                "lock": self._what,
                "waited_s": round(waited, 1),
                "limit_s": self._limit,
                "holders": [holder.as_dict() for holder in self._holders],
            },
        )


@contextlib.contextmanager
def state_lock(layout: Layout, name: str, *, shared: bool = False, waiting: Callable[[str], None] | None = None) -> Iterator[int]:
    """Holds the lock ``name`` for the block, waiting while another process has it.

    Args:
        name: What is locked: "upstream", "workspace", "build-cpu", "model-…", "certify".
        shared: Readers share; a writer excludes everybody.
        waiting: Told in a sentence who holds the lock. Default: a line on stderr.

    Yields:
        The locked descriptor. A child that inherits it (``pass_fds``) holds the lock on until it has ended too, however this
        process ends: so nobody works on what a killed command's children still write.

    Raises:
        StorageError: the lock folder cannot be written.
        LockedError: the lock was not free within :func:`longest_wait`.
    """
    with file_lock(layout.locks / f"{name}.lock", name, shared=shared, waiting=waiting) as descriptor:
        yield descriptor


@contextlib.contextmanager
def file_lock(path: Path, name: str, *, shared: bool = False, waiting: Callable[[str], None] | None = None) -> Iterator[int]:
    """Like :func:`state_lock`, on a lock file of one's own: for what several checkouts share, such as model storage."""
    descriptor = _open(path)
    try:
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        if not _taken(descriptor, mode, path):
            with Wait(f"the lock '{name}'", path, waiting) as wait:
                while not _taken(descriptor, mode, path):
                    wait.tick()
                    time.sleep(_POLL_SECONDS)
        if shared:
            yield descriptor
            return
        write_record(descriptor, " ".join(["dgrctl", *sys.argv[1:]]))
        yield descriptor
        # So a record that stands names a holder, or one that died holding.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, mode: int, path: Path) -> bool:
    try:
        with storage_errors(path):
            fcntl.flock(descriptor, mode)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    """Opens a lock file. A new one, and a new folder for it, can be used by whoever can use the folder that they are in."""
    with storage_errors(path):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _share(path.parent, path.parent.parent, 0o7777)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            try:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except PermissionError:
                # A lock needs no right to write. Only the record of its holder does.
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _share(path, path.parent, 0o666)
        return descriptor


def _share(path: Path, folder: Path, bits: int) -> None:
    """Gives ``path`` the group and the mode of ``folder``, as far as this user may."""
    with contextlib.suppress(OSError):
        pattern = folder.stat()
        with contextlib.suppress(OSError):
            os.chown(path, -1, pattern.st_gid)
        path.chmod(stat.S_IMODE(pattern.st_mode) & bits)


def _note(message: str) -> None:
    from dgrctl.console import note  # noqa: PLC0415 - rich is slow to load, and most commands wait for nothing

    note(message)


def _waiting_row(title: str) -> contextlib.AbstractContextManager[object]:
    from dgrctl.console import waiting_row  # noqa: PLC0415 - as above

    return waiting_row(title)
