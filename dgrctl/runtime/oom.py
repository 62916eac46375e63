"""Whether the kernel's out-of-memory killer ended a process.

A process that it ends dies of SIGKILL, like one that a person kills. What tells them apart are the kernel's counters: it raises
``oom_kill`` of the victim's memory cgroup, and of the whole machine, before it sends the signal.

Formats: cgroup v1 ``memory.oom_control``, cgroup v2 ``memory.events.local``, and ``/proc/vmstat`` all hold lines ``name number``
(Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst, filesystems/proc.rst of the kernel).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dgrctl.runtime.cgroups import cgroup_folder

_COUNTER = "oom_kill"


@dataclass(frozen=True)
class Verdict:
    """What the counters say about a process that died of SIGKILL.

    Attributes:
        killed: The out-of-memory killer did it.
        evidence: The counter and how far it rose; None where no counter rose.
    """

    killed: bool
    evidence: str | None


class OomWatch:
    """The counters of one process as they stand now, to be compared when it is dead.

    A process that moves to another cgroup needs a new watch: on cgroup v1 a dead one no longer says where it was.

    Args:
        proc: Where the kernel shows its processes.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._machine_file = proc / "vmstat"
        self._machine = _count(self._machine_file)
        self._file = _counter_file(proc, pid)
        self._group = _count(self._file) if self._file is not None else None

    def verdict(self) -> Verdict:
        """To be called once the process is dead of SIGKILL.

        The cgroup's counter decides where it can be read. The machine's counts every victim, so that it decides only where the
        cgroup's cannot be read, and is otherwise told as a circumstance.
        """
        group = _rise(f"memory cgroup counter {self._file}", self._group, _count(self._file)) if self._file else None
        if group is not None:
            return Verdict(killed=True, evidence=group)
        machine = _rise(f"counter in {self._machine_file}", self._machine, _count(self._machine_file))
        return Verdict(killed=machine is not None and self._group is None, evidence=machine)


def _rise(name: str, before: int | None, after: int | None) -> str | None:
    if before is None or after is None or after <= before:
        return None
    return f"{name}: {_COUNTER} rose from {before} to {after}"


def _count(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, number = line.partition(" ")
        if name == _COUNTER and number.strip().isdigit():
            return int(number)
    return None


def _counter_file(proc: Path, pid: int) -> Path | None:
    """The file with the counter of the memory cgroup that ``pid`` is in; None where there is none to read."""
    try:
        memberships = (proc / str(pid) / "cgroup").read_text().splitlines()
        mounts = (proc / "self" / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    unified: tuple[Path, Path] | None = None
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if "memory" in controllers.split(","):
            return _readable(cgroup_folder(mounts, "cgroup", "memory", path), "memory.oom_control")
        if not controllers:
            unified = cgroup_folder(mounts, "cgroup2", None, path)
    return _readable(unified, "memory.events.local") or _readable(unified, "memory.events")


def _readable(place: tuple[Path, Path] | None, name: str) -> Path | None:
    if place is None:
        return None
    return place[0] / name if _count(place[0] / name) is not None else None
