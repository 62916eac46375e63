"""Real cgroups with a CPU quota."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


class CpuCgroup:
    """A cgroup with a quota, and one inside it without; programs run in the inner one."""

    def __init__(self) -> None:
        self._base = _V1 if (_V1 / "cgroup.procs").exists() else _V2
        self.outer = self._base / f"dgr-test-{os.getpid()}"
        self.inner = self.outer / "inner"

    def make(self, percent: int) -> CpuCgroup:
        """Makes both; skips the test where this machine lets nobody limit processors.

        Args:
            percent: The quota, in hundredths of a processor.
        """
        try:
            self.outer.mkdir()
            if (self.outer / "cpu.cfs_quota_us").exists():
                (self.outer / "cpu.cfs_quota_us").write_text(str(percent * 1000))
            else:
                (self.outer / "cpu.max").write_text(f"{percent * 1000} 100000")
            self.inner.mkdir()
        except OSError as error:
            pytest.skip(f"no CPU quota can be set here: {error.filename or self.outer}: {error.strerror}")
        return self

    def run(self, command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command that is in the cgroup from its first instruction."""
        joining = ["/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self.inner / "cgroup.procs"), *command]
        return subprocess.run(joining, env=environment, capture_output=True, text=True, check=False)

    def remove(self) -> None:
        """Removes both. What is still in them, such as a keeper that ends right after its dgrctl, goes home first."""
        for folder in (self.inner, self.outer):
            if folder.exists():
                for pid in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        (self._base / "cgroup.procs").write_text(pid)
                folder.rmdir()
