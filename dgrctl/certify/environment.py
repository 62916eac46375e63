"""What can bend a measurement on this machine: processor, load, memory, kernel, virtualisation, clocks, throttling, stolen time,
processor quota, and the time that tasks wait for a processor.

Everything is read from /proc and /sys; what a kernel or a container does not show is None and never guessed. Formats: proc(5)
for cpuinfo, loadavg, meminfo and stat; cpufreq.rst and sysfs-devices-system-cpu and accounting/psi.rst in Linux's
Documentation for the rest.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from dgrctl.evidence.certification import CpuQuota, CpuTimes, Reading
from dgrctl.runtime.cgroups import cpu_quota

_CPUS = "sys/devices/system/cpu"


def capture(root: Path = Path("/")) -> Reading:
    """Reads the machine's state. ``root`` is where proc/ and sys/ lie."""
    model, flags = _processor(root)
    memory = _memory(root)
    return Reading(
        captured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        cpu_model=model,
        cpu_flags=tuple(flags),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        kernel=f"{platform.system()} {platform.release()} {platform.version()}",
        virtualisation=_virtualisation(root, flags),
        load_average=load_average(root),
        memory_total_kib=memory.get("MemTotal", 0),
        memory_available_kib=memory.get("MemAvailable", 0),
        governor=_one_of(root, "cpufreq/scaling_governor"),
        frequency_khz=_frequencies(root),
        throttle_events=_sum(_per_cpu(root, "thermal_throttle/core_throttle_count")),
        temperature_millicelsius=max(_numbers(root.glob("sys/class/thermal/thermal_zone*/temp")), default=None),
        times=cpu_times(root),
        cpu_quota=_quota(root),
        cpu_pressure_us=cpu_pressure_us(root),
    )


def load_average(root: Path = Path("/")) -> tuple[str, ...]:
    """The three load averages as the kernel prints them; empty where there is no /proc/loadavg."""
    return tuple((_text(root / "proc/loadavg") or "").split()[:3])


def cpu_times(root: Path = Path("/")) -> CpuTimes:
    """Ticks of all processors since boot; zeros where /proc/stat cannot be read."""
    first = (_text(root / "proc/stat") or "").split("\n", 1)[0].split()
    # user nice system idle iowait irq softirq steal guest guest_nice; guest time is contained in user and nice.
    known = first[:1] == ["cpu"] and all(field.isdigit() for field in first[1:9])
    ticks = [int(field) for field in first[1:9]] if known else []
    return CpuTimes(total=sum(ticks), stolen=ticks[7] if len(ticks) == 8 else 0)


def cpu_pressure_us(root: Path = Path("/")) -> int | None:
    """For how long some task of the machine has waited for a processor since boot; None on kernels without these figures.

    A kernel has them from Linux 4.20 on, unless it is built or started without them (``CONFIG_PSI``, ``psi=0``).
    """
    for line in (_text(root / "proc/pressure/cpu") or "").splitlines():
        kind, _, figures = line.partition(" ")
        total = figures.rpartition("total=")[2]
        if kind == "some" and total.isdigit():
            return int(total)
    return None


def stolen_ppm(before: CpuTimes, after: CpuTimes) -> int:
    """Share of processor time that a hypervisor gave to others between two looks, in parts per million."""
    total = after.total - before.total
    return (after.stolen - before.stolen) * 1_000_000 // total if total > 0 else 0


def changes(before: Reading, after: Reading) -> list[str]:
    """What differs that must not differ within one run: the machine, its kernel, its throttling. Empty when nothing does."""
    found = []
    for field in ("cpu_model", "cpu_flags", "cpus", "kernel", "virtualisation", "memory_total_kib", "governor"):
        if getattr(before, field) != getattr(after, field):
            found.append(f"{field} changed during the run")
    quotas = [reading.cpu_quota.cpus if reading.cpu_quota is not None else None for reading in (before, after)]
    if quotas[0] != quotas[1]:
        found.append(f"the CPU quota changed during the run, from {quotas[0] or 'none'} to {quotas[1] or 'none'}")
    if before.throttle_events is not None and after.throttle_events is not None:
        events = after.throttle_events - before.throttle_events
        if events > 0:
            found.append(f"the processor was throttled {events} times during the run")
    return found


def _processor(root: Path) -> tuple[str, list[str]]:
    model = ""
    flags: list[str] = []
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and not model:
            model = value.strip()
        elif key.strip() in ("flags", "Features") and not flags:
            flags = sorted(value.split())
    return model or platform.processor() or platform.machine() or "unknown", flags


def _memory(root: Path) -> dict[str, int]:
    """/proc/meminfo in KiB by name."""
    found = {}
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields = value.split()
        if fields and fields[0].isdigit():
            found[name] = int(fields[0])
    return found


def _virtualisation(root: Path, flags: list[str]) -> str:
    vendor = _text(root / "sys/hypervisor/type")
    if vendor is None and "hypervisor" in flags:
        product = _text(root / "sys/class/dmi/id/sys_vendor")
        vendor = f"hypervisor ({product})" if product else "hypervisor"
    container = (root / ".dockerenv").exists() or (root / "run/.containerenv").exists()
    return (vendor or "none") + ("+container" if container else "")


def _quota(root: Path) -> CpuQuota | None:
    quota = cpu_quota(root)
    if quota is None:
        return None
    return CpuQuota(
        cpus=f"{float(quota.cpus):.3f}",
        periods=quota.periods,
        throttled_periods=quota.throttled_periods,
        throttled_us=quota.throttled_us,
    )


def _frequencies(root: Path) -> tuple[int, ...] | None:
    exact = _per_cpu(root, "cpufreq/scaling_cur_freq")
    if exact:
        return tuple(exact)
    # Without cpufreq (most virtual machines) cpuinfo still prints what the kernel believes.
    lines = (_text(root / "proc/cpuinfo") or "").splitlines()
    megahertz = [line.partition(":")[2].strip() for line in lines if line.startswith("cpu MHz")]
    try:
        return tuple(round(float(value) * 1000) for value in megahertz) or None
    except ValueError:
        return None


def _per_cpu(root: Path, file: str) -> list[int]:
    folders = sorted((root / _CPUS).glob("cpu[0-9]*"), key=lambda folder: int(folder.name[3:]))
    return _numbers(folder / file for folder in folders)


def _one_of(root: Path, file: str) -> str | None:
    """The value of a per-processor file, "mixed" where processors differ, None where there is none."""
    values = {text for path in (root / _CPUS).glob(f"cpu[0-9]*/{file}") if (text := _text(path)) is not None}
    if len(values) > 1:
        return "mixed"
    return values.pop() if values else None


def _numbers(paths: Iterable[Path]) -> list[int]:
    found = []
    for path in paths:
        text = _text(path)
        if text is not None and text.lstrip("-").isdigit():
            found.append(int(text))
    return found


def _sum(values: list[int]) -> int | None:
    return sum(values) if values else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
