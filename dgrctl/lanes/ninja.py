"""Running Ninja: progress from its status lines, and on failure the command that failed with the end of what it said."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from dgrctl.console import progress
from dgrctl.errors import BuildError
from dgrctl.lanes.tool import Tool

# As NINJA_STATUS in the tool's environment has it: finished and total edges.
_STATUS = re.compile(r"^\[(\d+)/(\d+)\] ")
_LAST_LINES = 24
# The largest files (ggml's ops.cpp, generated services) take 0.4 GiB to compile with GCC 12.
_BYTES_PER_JOB = 512 * 1024**2


def run_ninja(ninja: Path, folder: Path, targets: Sequence[str], *, tool: Tool, title: str, jobs: int | None = None) -> None:
    """Builds ``targets`` in the configured ``folder``.

    Args:
        jobs: Commands at once; None for as many as this process may use processors and memory allows.

    Raises:
        BuildError: a command failed; names it, with the last lines of its output.
        StorageError: the disk is full.
    """
    lines: list[str] = []
    with progress(title) as update:

        def told(line: str) -> None:
            lines.append(line)
            status = _STATUS.match(line)
            if status:
                update(int(status.group(1)), int(status.group(2)))

        code = tool.run([str(ninja), "-C", str(folder), "-j", str(jobs or default_jobs()), *targets], told)
    if code != 0:
        tool.refuse_full_disk(lines)
        raise _failure(code, lines, tool.log)


def default_jobs() -> int:
    """One command a processor, as far as the memory that is available now goes; at least one."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Pages of the file cache are given up for a compiler but are not counted above; meminfo knows better where it exists.
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _meminfo(), re.MULTILINE)
    if found:
        available = int(found.group(1)) * 1024
    return max(1, min(processors, available // _BYTES_PER_JOB))


def _meminfo() -> str:
    try:
        return Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _failure(code: int, lines: Sequence[str], log: Path) -> BuildError:
    """Ninja prints ``FAILED: output``, the command, then what the command printed, up to the next status line."""
    start = next((index for index, line in enumerate(lines) if line.startswith("FAILED: ")), None)
    if start is None:
        ending = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        return BuildError(
            f"ninja {ending}",
            where=str(log),
            detail="\n".join(lines[-_LAST_LINES:]),
            remedy="correct that and run the same command again; what is compiled is kept",
        )
    said: list[str] = []
    for line in lines[start + 2 :]:
        if _STATUS.match(line) or line.startswith("ninja: "):
            break
        said.append(line)
    command = lines[start + 1] if start + 1 < len(lines) else ""
    killed = any("Killed signal terminated program" in line for line in said)
    return BuildError(
        f"building {lines[start].removeprefix('FAILED: ').strip()} failed",
        where=str(log),
        detail="\n".join([command, *said[-_LAST_LINES:]]),
        remedy="the compiler was killed, most likely for memory: build with --jobs 1"
        if killed
        else "correct that and run the same command again; what is compiled is kept",
    )
