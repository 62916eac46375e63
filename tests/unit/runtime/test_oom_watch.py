"""Whether a SIGKILL came from the out-of-memory killer, by the kernel's counters in both layouts of cgroups.

The files are written here in the kernel's formats; tests/faults has the kernel write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dgrctl.runtime.oom import OomWatch

PID = 4711


class Kernel:
    """A /proc and cgroup mounts below a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.mount = root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / str(PID)).mkdir()
        self.mounts("")
        self.machine(3)

    def mounts(self, text: str) -> None:
        (self.proc / "self" / "mountinfo").write_text(f"22 1 0:20 / / rw - ext4 /dev/vda rw\n{text}")

    def machine(self, count: int) -> None:
        (self.proc / "vmstat").write_text(f"pgfault 17\noom_kill {count}\noom_kill_other 9\n")

    def v1(self, root: str = "/") -> None:
        self.mounts(
            f"32 31 0:29 / {self.mount}/cpu rw - cgroup cgroup rw,cpu\n"
            f"35 31 0:32 {root} {self.mount}/m rw - cgroup cgroup rw,memory\n"
        )

    def v2(self) -> None:
        self.mounts(f"41 31 0:38 / {self.mount}/u rw - cgroup2 cgroup2 rw\n")

    def member(self, *lines: str) -> None:
        (self.proc / str(PID) / "cgroup").write_text("".join(f"{line}\n" for line in lines))

    def counter(self, path: str, count: int) -> None:
        file = self.mount / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n")

    def watch(self) -> OomWatch:
        return OomWatch(PID, self.proc)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_v1_counter_of_its_own_cgroup(kernel: Kernel) -> None:
    kernel.v1()
    kernel.member("5:cpu:/other", "4:memory:/job", "0::/")
    kernel.counter("m/job/memory.oom_control", 2)
    watch = kernel.watch()
    kernel.counter("m/job/memory.oom_control", 3)
    verdict = watch.verdict()
    assert verdict.killed
    assert verdict.evidence == f"memory cgroup counter {kernel.mount}/m/job/memory.oom_control: oom_kill rose from 2 to 3"


def test_v1_mounted_from_inside_a_container(kernel: Kernel) -> None:
    kernel.v1(root="/docker/abc")
    kernel.member("4:memory:/docker/abc/job")
    kernel.counter("m/job/memory.oom_control", 0)
    watch = kernel.watch()
    kernel.counter("m/job/memory.oom_control", 1)
    assert watch.verdict().killed


def test_v2_prefers_the_events_of_the_cgroup_itself(kernel: Kernel) -> None:
    kernel.v2()
    kernel.member("0::/system.slice/job.service")
    kernel.counter("u/system.slice/job.service/memory.events.local", 0)
    kernel.counter("u/system.slice/job.service/memory.events", 7)
    watch = kernel.watch()
    kernel.counter("u/system.slice/job.service/memory.events", 8)
    assert not watch.verdict().killed
    kernel.counter("u/system.slice/job.service/memory.events.local", 1)
    assert watch.verdict().killed


def test_v2_without_local_events(kernel: Kernel) -> None:
    kernel.v2()
    kernel.member("0::/job")
    kernel.counter("u/job/memory.events", 0)
    watch = kernel.watch()
    kernel.counter("u/job/memory.events", 1)
    assert watch.verdict().killed


def test_another_victim_on_the_machine_is_only_a_circumstance(kernel: Kernel) -> None:
    kernel.v1()
    kernel.member("4:memory:/job")
    kernel.counter("m/job/memory.oom_control", 0)
    watch = kernel.watch()
    kernel.machine(4)
    verdict = watch.verdict()
    assert not verdict.killed
    assert verdict.evidence == f"counter in {kernel.proc}/vmstat: oom_kill rose from 3 to 4"


def test_without_a_readable_cgroup_the_machine_decides(kernel: Kernel) -> None:
    kernel.member("4:memory:/job")
    watch = kernel.watch()
    assert not watch.verdict().killed
    kernel.machine(4)
    assert watch.verdict().killed


def test_a_dead_process_without_any_file_gives_no_verdict(tmp_path: Path) -> None:
    watch = OomWatch(PID, tmp_path)
    verdict = watch.verdict()
    assert not verdict.killed
    assert verdict.evidence is None
