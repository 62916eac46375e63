"""Running CMake and Ninja: their whole output in a log, their environment cut down to what a lane's identity covers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgrctl.errors import StorageError
from dgrctl.files import storage_errors
from dgrctl.offspring import marked

# All that a build inherits. CFLAGS, CPATH, LIBRARY_PATH, CMAKE_*, CCACHE_* and their like would change what it makes without
# being part of its identity; CC and CXX are read by the toolchain search.
_INHERITED = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", *(SEARCHED := ("PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH")))

_FULL_DISK = ("No space left on device", "Disk quota exceeded")
# Less than this left after a failure: the tool was killed by a full disk even where it does not say so (a linker's SIGBUS).
_NEXT_TO_NOTHING_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Tool:
    """How the programs of one build are run.

    Attributes:
        log: Receives everything they print; begun anew by the first of them.
        environment: Their whole environment.
        held: Locked descriptors that they inherit, so that no second build starts while one of them still runs.
    """

    log: Path
    environment: Mapping[str, str]
    held: tuple[int, ...]

    def run(self, command: Sequence[str], told: Callable[[str], None]) -> int:
        """Runs ``command`` to its end; ``told`` gets each line as it comes. Returns the exit status, negative for a signal.

        Raises:
            StorageError: the log cannot be written.
        """
        with storage_errors(self.log), self.log.open("a", encoding="utf-8", buffering=1) as log:
            process = subprocess.Popen(
                list(command),
                env=marked(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                pass_fds=self.held,
            )
            with process:
                try:
                    for line in process.stdout or ():
                        log.write(line)
                        told(line.rstrip("\n"))
                except BaseException:
                    # Ninja ends the compilers that it started, too.
                    process.terminate()
                    raise
            return process.returncode

    def refuse_full_disk(self, output: Sequence[str]) -> None:
        """After a failure: says so if the disk was its cause.

        Raises:
            StorageError: it was.
        """
        told = next((line for line in output if any(sign in line for sign in _FULL_DISK)), None)
        free = shutil.disk_usage(self.log.parent).free
        if told is not None or free < _NEXT_TO_NOTHING_BYTES:
            raise StorageError(
                "the disk is full",
                where=str(self.log.parent),
                detail=told or f"{free} bytes are free",
                remedy="free space and run the same command again; what is compiled is kept",
            )


def build_environment(ccache_folder: Path) -> dict[str, str]:
    """The environment of a build. ccache's manual (section "Configuration") explains the variables."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {
        "LC_ALL": "C",
        "NINJA_STATUS": "[%f/%t] ",
        "CCACHE_DIR": str(ccache_folder),
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_MAXSIZE": "2G",
        "CCACHE_COMPILERCHECK": "content",
        # The folder that a compiler runs in shows in nothing but debug information, which there is none of.
        "CCACHE_NOHASHDIR": "1",
    }
