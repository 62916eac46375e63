"""Devices of the lanes, and the reason for each that has none, found by looking at a machine's root folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dgrctl.errors import ToolchainError, UsageError
from dgrctl.lanes.device import LANES, detect, unavailable_reason


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PATH holds nothing, so that only the folder under test speaks."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def _put(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    return root


def test_five_lanes_in_one_order() -> None:
    assert LANES == ("cpu", "cuda", "rocm", "vulkan", "metal")


def test_this_machines_processor_is_a_device() -> None:
    device = detect("cpu")
    assert unavailable_reason("cpu") is None
    assert device.lane == "cpu"
    assert device.name
    assert device.isa.startswith(("x86-64-v", "armv8"))
    assert list(device.flags) == sorted(device.flags)


@pytest.mark.parametrize("lane", LANES[1:])
def test_every_other_lane_is_dark_on_a_bare_machine_and_says_what_is_missing(lane: str, tmp_path: Path) -> None:
    reason = unavailable_reason(lane, tmp_path)
    assert reason is not None
    assert reason.endswith("this version builds only the cpu lane")
    if lane != "metal" or sys.platform != "darwin":
        assert ";" in reason
    with pytest.raises(ToolchainError, match=f"the lane {lane} has no device here"):
        detect(lane, tmp_path)


def test_a_gpu_with_its_driver_and_compiler_leaves_only_the_version_as_the_reason(tmp_path: Path) -> None:
    _put(tmp_path, "dev/nvidia0", "proc/driver/nvidia/version", "usr/local/cuda/bin/nvcc")
    _put(tmp_path, "dev/kfd", "opt/rocm/bin/hipcc")
    _put(tmp_path, "dev/dri/renderD128", "usr/share/vulkan/icd.d/radeon_icd.x86_64.json", "bin/glslc")
    for lane in ("cuda", "rocm", "vulkan"):
        assert unavailable_reason(lane, tmp_path) == "this version builds only the cpu lane"


def test_a_gpu_without_a_driver_says_so(tmp_path: Path) -> None:
    reason = unavailable_reason("cuda", _put(tmp_path, "dev/nvidia0")) or ""
    assert "no NVIDIA GPU" not in reason
    assert "no NVIDIA driver" in reason
    assert "no nvcc" in reason


def test_a_software_rasteriser_is_no_hardware(tmp_path: Path) -> None:
    _put(tmp_path, "dev/dri/renderD128", "usr/share/vulkan/icd.d/lvp_icd.x86_64.json")
    assert "software rasteriser (lvp_icd.x86_64.json)" in (unavailable_reason("vulkan", tmp_path) or "")
    _put(tmp_path, "etc/vulkan/icd.d/nvidia_icd.json")
    assert "software" not in (unavailable_reason("vulkan", tmp_path) or "")


def test_an_unknown_processor_has_no_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert unavailable_reason("cpu", tmp_path) == ("no ISA level is defined for riscv64 processors like this unnamed riscv64")
    with pytest.raises(ToolchainError, match="riscv64"):
        detect("cpu", tmp_path)


def test_an_unknown_lane_is_refused() -> None:
    with pytest.raises(UsageError, match="no lane 'tpu'") as refused:
        unavailable_reason("tpu")
    assert "cpu, cuda, rocm, vulkan, metal" in str(refused.value.remedy)
