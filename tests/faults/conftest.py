"""Memory cgroups with a limit of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


class MemoryCgroup:
    """One cgroup. Processes join it by the command prefix, so that they are in it from their first instruction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._v1 = (folder / "memory.limit_in_bytes").exists()

    @property
    def counter(self) -> Path:
        """The file that counts out-of-memory kills."""
        return self.folder / ("memory.oom_control" if self._v1 else "memory.events.local")

    @property
    def usage(self) -> int:
        return int((self.folder / ("memory.usage_in_bytes" if self._v1 else "memory.current")).read_text())

    def limit(self, size: int) -> None:
        (self.folder / ("memory.limit_in_bytes" if self._v1 else "memory.max")).write_text(str(size))

    def joining(self, command: list[str]) -> list[str]:
        return ["/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self.folder / "cgroup.procs"), *command]


@pytest.fixture
def memory_cgroup() -> Iterator[MemoryCgroup]:
    """A cgroup without a limit so far; skipped where this machine lets nobody make one."""
    base = _V1 if (_V1 / "cgroup.procs").exists() else _V2
    folder = base / f"dgr-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made: mkdir {folder}: {error.strerror}")
    try:
        cgroup = MemoryCgroup(folder)
        try:
            cgroup.limit(1 << 40)
        except OSError as error:
            pytest.skip(f"no memory limit can be set: {error.filename}: {error.strerror}")
        yield cgroup
    finally:
        # What is still in it goes home before the folder goes.
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (base / "cgroup.procs").write_text(pid)
        folder.rmdir()
