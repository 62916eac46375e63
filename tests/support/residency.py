"""What of a process lies in memory, as the kernel counts it (proc_pid_smaps(5))."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Residency:
    """Bytes of one process.

    Attributes:
        total: All that is resident (VmRSS).
        program: Of that, pages of the program and of the system's libraries; processes on one machine share them.
        peak: The most that was ever resident (VmHWM).
        reach: What is mapped of the model's files and can be read, resident or not.
    """

    total: int
    program: int
    peak: int
    reach: int


def residency(pid: int, model_files: Sequence[Path]) -> Residency:
    """Looks at the process ``pid``, which uses ``model_files``."""
    resident: Counter[str] = Counter()
    readable: Counter[str] = Counter()
    mapped, access = "", ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            mapped, access = words[5] if len(words) > 5 else "", words[1]
        elif words[0] == "Rss:":
            resident[mapped] += int(words[1]) * 1024
        elif words[0] == "Size:" and access.startswith("r"):
            readable[mapped] += int(words[1]) * 1024
    files = {str(path.resolve()) for path in model_files}
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Residency(
        total=resident.total(),
        program=sum(size for path, size in resident.items() if path.startswith("/") and path not in files),
        peak=int(status["VmHWM"].split()[0]) * 1024,
        reach=sum(size for path, size in readable.items() if path in files),
    )
