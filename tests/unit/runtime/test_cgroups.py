"""The processor quota of this process: in trees as the kernel lays them out, and in real cgroups."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from cpu_cgroups import CpuCgroup

from dgrctl.runtime.cgroups import Quota, cpu_quota, warn_of_quota

V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate\n"
V1 = (
    "31 30 0:27 {root} /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n"
    "32 30 0:28 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct\n"
)
V2_STAT = "usage_usec 900\nnr_periods {0}\nnr_throttled {1}\nthrottled_usec {2}\n"
V1_STAT = "nr_periods {0}\nnr_throttled {1}\nthrottled_time {2}000\n"


def machine(root: Path, membership: str, mounts: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": membership, "proc/self/mountinfo": mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_cgroup_v2(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/app"
    files = {f"{at}/cpu.max": "150000 100000\n", f"{at}/cpu.stat": V2_STAT.format(10, 4, 7000)}
    root = machine(tmp_path, "0::/app\n", V2.format(root="/"), files)
    assert cpu_quota(root) == Quota(Fraction(3, 2), 10, 4, 7000)


def test_cgroup_v1_beside_v2(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/cpu,cpuacct/app"
    files = {
        f"{at}/cpu.cfs_quota_us": "50000\n",
        f"{at}/cpu.cfs_period_us": "100000\n",
        f"{at}/cpu.stat": V1_STAT.format(9, 3, 8),
    }
    membership = "5:memory:/other\n4:cpu,cpuacct:/app\n0::/unified\n"
    root = machine(tmp_path, membership, V1.format(root="/") + V2.format(root="/"), files)
    assert cpu_quota(root) == Quota(Fraction(1, 2), 9, 3, 8)


def test_the_tightest_of_all_quotas_above_counts_and_their_throttling_adds_up(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    files = {
        f"{top}/a/cpu.max": "100000 100000\n",
        f"{top}/a/cpu.stat": V2_STAT.format(100, 5, 50),
        f"{top}/a/b/cpu.max": "max 100000\n",
        f"{top}/a/b/cpu.stat": V2_STAT.format(0, 0, 0),
        f"{top}/a/b/c/cpu.max": "400000 100000\n",
        f"{top}/a/b/c/cpu.stat": V2_STAT.format(20, 2, 3),
    }
    assert cpu_quota(machine(tmp_path, "0::/a/b/c\n", V2.format(root="/"), files)) == Quota(Fraction(1), 120, 7, 53)


@pytest.mark.parametrize(
    ("path", "mounted"),
    [
        ("/", "/"),  # a cgroup namespace of its own: the container's cgroup is the root
        ("/docker/abc", "/docker/abc"),  # the machine's namespace, of which only the container's part is mounted
        ("/../abc", "/"),  # joined from outside the namespace
    ],
)
def test_inside_a_container(tmp_path: Path, path: str, mounted: str) -> None:
    files = {"sys/fs/cgroup/cpu.max": "200000 100000\n", "sys/fs/cgroup/cpu.stat": V2_STAT.format(1, 0, 0)}
    assert cpu_quota(machine(tmp_path, f"0::{path}\n", V2.format(root=mounted), files)) == Quota(Fraction(2), 1, 0, 0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"sys/fs/cgroup/app/cpu.max": "max 100000\n"},
        {"sys/fs/cgroup/app/cpu.max": "\n"},
        {"sys/fs/cgroup/app/cpu.max": "100000 0\n"},
    ],
)
def test_no_quota(tmp_path: Path, files: dict[str, str]) -> None:
    assert cpu_quota(machine(tmp_path, "0::/app\n", V2.format(root="/"), files)) is None


def test_v1_without_a_quota(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/cpu,cpuacct/app"
    files = {f"{at}/cpu.cfs_quota_us": "-1\n", f"{at}/cpu.cfs_period_us": "100000\n"}
    assert cpu_quota(machine(tmp_path, "4:cpu,cpuacct:/app\n", V1.format(root="/"), files)) is None


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


def test_more_threads_than_the_quota_are_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machine(tmp_path, "0::/app\n", V2.format(root="/"), {"sys/fs/cgroup/app/cpu.max": "150000 100000\n"})
    warn_of_quota(1, root)
    assert capsys.readouterr().err == ""
    warn_of_quota(2, root)
    said = capsys.readouterr().err
    assert "warning: the recipe asks for 2 threads per stage, and a CPU quota allows 1.5 processors" in said
    assert "threads = 1" in said


THROTTLED = """
from dgrctl.runtime.cgroups import cpu_quota
before = cpu_quota()
while cpu_quota().throttled_periods == before.throttled_periods:  # it burns processor time until the kernel has stopped it
    pass
after = cpu_quota()
print(before.cpus, after.throttled_us > before.throttled_us, after.periods > before.periods)
"""


def printed_in(cgroup: CpuCgroup, program: str) -> str:
    return cgroup.run([sys.executable, "-c", program]).stdout


def test_a_real_quota_above_is_found_and_its_throttling_counted(cpu_cgroup: Callable[[int], CpuCgroup]) -> None:
    assert printed_in(cpu_cgroup(20), THROTTLED) == "1/5 True True\n"
