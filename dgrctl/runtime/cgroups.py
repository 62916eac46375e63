"""Where a process's cgroups lie, and the processor quota that they give it.

A container usually sees all processors of its machine and may use only some of their time: the kernel stops all its threads for
the rest of a period (0.1 s) when they have used the quota of that period. Threads beyond the quota make it slower, not faster.

Formats: cgroups(7) and proc_pid_mountinfo(5); ``cpu.max`` and ``cpu.stat`` in Documentation/admin-guide/cgroup-v2.rst of the
kernel; ``cpu.cfs_quota_us``, ``cpu.cfs_period_us`` and ``cpu.stat`` of cgroup v1 in Documentation/scheduler/sched-bwc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath

from dgrctl.console import note


@dataclass(frozen=True)
class Quota:
    """The processor quota of a cgroup and those above it.

    Attributes:
        cpus: The tightest of them, in processors.
        periods, throttled_periods, throttled_us: Sums over all cgroups with a quota, since they were made: periods that passed,
            periods in which the kernel stopped threads, and for how long.
    """

    cpus: Fraction
    periods: int
    throttled_periods: int
    throttled_us: int


def cpu_quota(root: Path = Path("/")) -> Quota | None:
    """This process's quota; None where none is set, or where the kernel shows none.

    Args:
        root: Where proc/ and the mounts of the cgroups lie.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    found = [limit for folder in _cpu_folders(memberships, mounts) if (limit := _limit(root / folder.lstrip("/"))) is not None]
    if not found:
        return None
    return Quota(
        cpus=min(limit.cpus for limit in found),
        periods=sum(limit.periods for limit in found),
        throttled_periods=sum(limit.throttled_periods for limit in found),
        throttled_us=sum(limit.throttled_us for limit in found),
    )


def warn_of_quota(threads: int, root: Path = Path("/")) -> None:
    """Says on stderr when ``threads`` are more than the quota allows to run at a time."""
    quota = cpu_quota(root)
    if quota is not None and threads > quota.cpus:
        note(
            f"warning: the recipe asks for {threads} threads per stage, and a CPU quota allows {float(quota.cpus):g} processors. "
            "The kernel stops all threads whenever the quota is used up. "
            f"Raise the quota, or use a recipe with threads = {max(1, int(quota.cpus))}."
        )


def cgroup_folder(mounts: list[str], kind: str, option: str | None, path: str) -> tuple[Path, Path] | None:
    """Where the cgroup ``path`` of one hierarchy lies in the file system, and where the hierarchy is mounted.

    Args:
        mounts: Lines of /proc/self/mountinfo: ``id parent device root mountpoint options … - kind source superoptions``.
        kind: "cgroup" or "cgroup2".
        option: A controller among the mount's options; None for any.
    """
    for line in mounts:
        left, _, right = line.partition(" - ")
        found, _, options = right.split(" ", 2)
        if found != kind or (option is not None and option not in options.split(",")):
            continue
        root, mountpoint = left.split(" ")[3:5]
        if PurePosixPath(path).is_relative_to(root):
            path = str(PurePosixPath(path).relative_to(root))
        elif ".." in PurePosixPath(path).parts:
            path = ""  # The cgroup lies outside what this process's cgroup namespace shows.
        return Path(mountpoint) / path.lstrip("/"), Path(mountpoint)
    return None


def _cpu_folders(memberships: list[str], mounts: list[str]) -> Iterator[str]:
    """The cgroup that limits this process's processor time and all above it."""
    by_controllers = {controllers: path for _, controllers, path in (line.split(":", 2) for line in memberships)}
    v1 = next((path for controllers, path in by_controllers.items() if "cpu" in controllers.split(",")), None)
    if v1 is not None:
        place = cgroup_folder(mounts, "cgroup", "cpu", v1)
    else:
        place = cgroup_folder(mounts, "cgroup2", None, by_controllers.get("", "/"))
    if place is None:
        return
    folder, top = place
    yield str(folder)
    while folder != top:
        folder = folder.parent
        yield str(folder)


def _limit(folder: Path) -> Quota | None:
    """The quota of this one cgroup."""
    unified = (_read(folder / "cpu.max") or "").split()
    quota, period = unified if len(unified) == 2 else (_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))
    # Without a quota, cgroup v2 says "max" and v1 says -1.
    if not (quota or "").isdigit() or not (period or "").isdigit() or not int(period or 0):
        return None
    counts = dict(line.split(" ", 1) for line in (_read(folder / "cpu.stat") or "").splitlines() if " " in line)
    numbers = {name: int(text) for name, text in counts.items() if text.isdigit()}
    return Quota(
        cpus=Fraction(int(quota or 0), int(period or 1)),
        periods=numbers.get("nr_periods", 0),
        throttled_periods=numbers.get("nr_throttled", 0),
        throttled_us=numbers.get("throttled_usec", numbers.get("throttled_time", 0) // 1000),
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
