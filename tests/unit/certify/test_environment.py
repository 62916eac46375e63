"""dgrctl.certify.environment"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cpu_cgroups import CpuCgroup

from dgrctl.certify.environment import capture, changes, stolen_ppm
from dgrctl.evidence.certification import CpuTimes, Reading

CPUINFO = """\
processor\t: 0
model name\t: Example CPU @ 2.00GHz
cpu MHz\t\t: 2000.500
flags\t\t: sse avx2 hypervisor

processor\t: 1
model name\t: Example CPU @ 2.00GHz
cpu MHz\t\t: 1999.000
flags\t\t: sse avx2 hypervisor
"""
FILES = {
    "proc/cpuinfo": CPUINFO,
    "proc/loadavg": "0.50 0.25 0.10 1/100 4242\n",
    "proc/meminfo": "MemTotal:       2048 kB\nMemFree:         512 kB\nMemAvailable:   1024 kB\n",
    "proc/stat": "cpu  10 0 20 60 5 1 2 2 0 0\ncpu0 5 0 10 30 2 0 1 1 0 0\n",
}


def machine(root: Path, **more: str) -> Path:
    for name, text in {**FILES, **more}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_virtual_machine(tmp_path: Path) -> None:
    seen = capture(machine(tmp_path, **{"sys/class/dmi/id/sys_vendor": "QEMU\n"}))
    assert seen.cpu_model == "Example CPU @ 2.00GHz"
    assert seen.cpu_flags == ("avx2", "hypervisor", "sse")
    assert seen.virtualisation == "hypervisor (QEMU)"
    assert seen.load_average == ("0.50", "0.25", "0.10")
    assert (seen.memory_total_kib, seen.memory_available_kib) == (2048, 1024)
    assert seen.frequency_khz == (2000500, 1999000)
    assert seen.times == CpuTimes(total=100, stolen=2)
    assert (seen.governor, seen.throttle_events, seen.temperature_millicelsius) == (None, None, None)


def test_a_machine_that_shows_its_clocks(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": CPUINFO.replace(" hypervisor", ""), "sys/class/thermal/thermal_zone0/temp": "45000\n"}
    for cpu, khz in ((0, 1800000), (1, 2100000), (10, 900000)):
        files[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"] = "performance\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"] = f"{khz}\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count"] = "3\n"
    seen = capture(machine(tmp_path, **files))
    assert seen.virtualisation == "none"
    assert (seen.governor, seen.throttle_events, seen.temperature_millicelsius) == ("performance", 9, 45000)
    assert seen.frequency_khz == (1800000, 2100000, 900000)


def test_a_container_is_said_to_be_one(tmp_path: Path) -> None:
    assert capture(machine(tmp_path, **{".dockerenv": "", "sys/hypervisor/type": "xen\n"})).virtualisation == "xen+container"


def test_governors_that_differ_are_said_to(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    seen = capture(machine(tmp_path, **{folder.format(0): "powersave\n", folder.format(1): "performance\n"}))
    assert seen.governor == "mixed"


def test_nothing_readable_is_nothing_known(tmp_path: Path) -> None:
    seen = capture(tmp_path)
    assert (seen.cpu_flags, seen.load_average, seen.frequency_khz, seen.times) == ((), (), None, CpuTimes(total=0, stolen=0))


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu 1 2 3\n", "intr 1\n", "cpu MHz\t: fast\n"])
def test_unknown_formats_are_nothing_known(tmp_path: Path, text: str) -> None:
    seen = capture(machine(tmp_path, **{"proc/stat": text, "proc/cpuinfo": text}))
    assert (seen.times.stolen, seen.frequency_khz) == (0, None)


def test_this_machine_is_encodable() -> None:
    seen = capture()
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Reading) == seen
    assert seen.cpus > 0


def test_stolen_time_is_a_share_of_all_time() -> None:
    before, after = CpuTimes(total=1000, stolen=10), CpuTimes(total=3000, stolen=30)
    assert stolen_ppm(before, after) == 10_000
    assert stolen_ppm(before, before) == 0


def test_a_steady_machine_has_no_changes(tmp_path: Path) -> None:
    machine(tmp_path)
    before = capture(tmp_path)
    (tmp_path / "proc/loadavg").write_text("3.00 1.00 0.20 3/100 4243\n")
    assert changes(before, capture(tmp_path)) == []


def test_throttling_and_another_governor_are_changes(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0"
    names = ("thermal_throttle/core_throttle_count", "cpufreq/scaling_governor")
    machine(tmp_path, **{f"sys/devices/system/cpu/cpu0/{name}": "1" for name in names})
    before = capture(tmp_path)
    (folder / names[0]).write_text("4")
    (folder / names[1]).write_text("powersave")
    assert changes(before, capture(tmp_path)) == [
        "governor changed during the run",
        "the processor was throttled 3 times during the run",
    ]


def test_the_time_that_tasks_waited_for_a_processor(tmp_path: Path) -> None:
    text = "some avg10=0.00 avg60=1.25 avg300=0.30 total=4242\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    assert capture(machine(tmp_path, **{"proc/pressure/cpu": text})).cpu_pressure_us == 4242


@pytest.mark.parametrize("text", [None, "", "some\n", "some avg10=0.00 total=\n", "full avg10=0.00 total=7\n"])
def test_a_kernel_without_pressure_figures_has_none(tmp_path: Path, text: str | None) -> None:
    files = {} if text is None else {"proc/pressure/cpu": text}
    assert capture(machine(tmp_path, **files)).cpu_pressure_us is None


def test_a_quota_that_changes_during_a_run_is_a_change(tmp_path: Path) -> None:
    mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    machine(tmp_path, **{"proc/self/cgroup": "0::/app\n", "proc/self/mountinfo": mount})
    before = capture(tmp_path)
    after = capture(machine(tmp_path, **{"sys/fs/cgroup/app/cpu.max": "150000 100000\n"}))
    assert changes(before, after) == ["the CPU quota changed during the run, from none to 1.500"]


RECORDED = """
from dgrctl.certify.environment import capture
quota = capture().cpu_quota
print(quota.cpus, quota.throttled_periods >= 0)
"""


def test_a_real_quota_is_recorded(cpu_cgroup: Callable[[int], CpuCgroup]) -> None:
    assert cpu_cgroup(150).run([sys.executable, "-c", RECORDED]).stdout == "1.500 True\n"
