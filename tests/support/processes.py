"""Looking at the workers of a running ``dgrctl`` from outside."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# How long a test waits for an event before it calls it missing. Nothing is measured against it.
PATIENCE = 60.0


@dataclass(frozen=True)
class Worker:
    """One worker process; ``pidfd`` stays its own even when the number is used again."""

    pid: int
    layers: str
    pidfd: int

    @property
    def alive(self) -> bool:
        return not _readable(self.pidfd, 0)

    def dies(self, seconds: float = PATIENCE) -> bool:
        """Waits for its death."""
        return _readable(self.pidfd, seconds)


@contextlib.contextmanager
def workers_of(parent: int) -> Iterator[list[Worker]]:
    """The dgr-workers whose parent is ``parent``, in route order."""
    found = []
    try:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and _parent(folder) == parent:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                if Path(words[0]).name == "dgr-worker":
                    layers = words[words.index("--layers") + 1]
                    found.append(Worker(int(folder.name), layers, os.pidfd_open(int(folder.name))))
        yield sorted(found, key=lambda worker: int(worker.layers.partition(":")[0]))
    finally:
        for worker in found:
            os.close(worker.pidfd)


class Stopwatch:
    """Shows how long something took, for people who read the test's output."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def show(self, what: str) -> None:
        print(f"{what}: {time.monotonic() - self._started:.3f} s")


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _readable(descriptor: int, seconds: float) -> bool:
    watch = select.poll()
    watch.register(descriptor, select.POLLIN)
    return bool(watch.poll(seconds * 1000))


def read(stream: IO[bytes] | None, size: int = -1, *, until: bytes = b"") -> bytes:
    """What a process wrote into a pipe of ours: at least ``size`` bytes, or all up to ``until``, or all until it closes the pipe.

    It reads past Python's own buffer, so do not mix it with the stream's own methods. Fails where nothing comes for
    :data:`PATIENCE` seconds.
    """
    assert stream is not None, "the process was started without this pipe"
    got = b""
    while not (0 <= size <= len(got) or (until and until in got)):
        assert _readable(stream.fileno(), PATIENCE), f"nothing more came for {PATIENCE:g} s after {got[-2000:]!r}"
        chunk = os.read(stream.fileno(), 65536)
        if not chunk:
            assert size < 0, f"the process closed its pipe after {got[-2000:]!r}"
            assert not until, f"the process closed its pipe without {until!r}: {got[-2000:]!r}"
            break
        got += chunk
    return got


def dies(pidfd: int, seconds: float = PATIENCE) -> bool:
    """Waits for the death of a process that need not be a child."""
    return _readable(pidfd, seconds)
