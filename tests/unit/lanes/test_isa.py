"""ISA levels: chosen from real processors' flags, named, refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dgrctl.errors import ToolchainError, UsageError
from dgrctl.lanes.build import refuse_foreign_isa
from dgrctl.lanes.isa import LEVELS, highest, lacking, level
from dgrctl.lanes.processor import Processor, read_processor

# As Linux prints them, less what no level asks for.
NEHALEM = "fpu tsc msr cx8 cmov mmx fxsr sse sse2 ht syscall nx lm constant_tsc pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
HASWELL = f"{NEHALEM} movbe aes xsave avx f16c rdrand abm fma bmi1 avx2 bmi2"
SKYLAKE_SERVER = f"{HASWELL} avx512f avx512dq avx512cd avx512bw avx512vl pku"
NEOVERSE_N1 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", "fpu sse sse2 lm", "x86-64-v1"),
        ("x86_64", NEHALEM, "x86-64-v2"),
        ("x86_64", HASWELL, "x86-64-v3"),
        ("x86_64", SKYLAKE_SERVER, "x86-64-v4"),
        # AVX-512 without AVX2 is not a level; a hypervisor may hide any flag.
        ("x86_64", SKYLAKE_SERVER.replace(" avx2", ""), "x86-64-v2"),
        ("x86_64", HASWELL.replace(" movbe", ""), "x86-64-v2"),
        ("aarch64", "fp asimd", "armv8-a"),
        ("aarch64", NEOVERSE_N1, "armv8.2-a+dotprod+fp16"),
        ("aarch64", f"{NEOVERSE_N1} i8mm bf16", "armv8.2-a+dotprod+fp16+i8mm"),
    ],
)
def test_highest_level_that_every_flag_allows(machine: str, flags: str, name: str) -> None:
    reached = highest(machine, frozenset(flags.split()))
    assert reached is not None
    assert reached.name == name


def test_an_architecture_without_levels_has_none() -> None:
    assert highest("riscv64", frozenset({"v"})) is None
    assert highest("aarch64", frozenset()) is None


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_levels_rise(machine: str) -> None:
    levels = [known for known in LEVELS if known.machine == machine]
    for lower, higher in itertools.pairwise(levels):
        assert lower.cpu_flags <= higher.cpu_flags
        assert set(lower.ggml_options) == set(higher.ggml_options)


def test_no_level_enables_amx_or_leaves_a_switch_to_defaults() -> None:
    for known in LEVELS:
        if known.machine == "x86_64":
            assert {known.ggml_options[f"GGML_AMX_{kind}"] for kind in ("TILE", "INT8", "BF16")} == {"OFF"}
            assert set(known.ggml_options.values()) <= {"ON", "OFF"}


def test_an_unknown_level_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no ISA level 'x86-64-v5'") as refused:
        level("x86-64-v5", "x86_64")
    assert "x86-64-v1, x86-64-v2, x86-64-v3, x86-64-v4" in str(refused.value.remedy)


def test_another_architectures_level_is_refused() -> None:
    with pytest.raises(UsageError, match="for aarch64"):
        level("x86-64-v3", "aarch64")


def test_lacking_names_the_flags() -> None:
    assert lacking(level("x86-64-v4", "x86_64"), frozenset(HASWELL.split())) == [
        "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl",
    ]  # fmt: skip


def test_a_build_above_the_processor_is_refused() -> None:
    processor = Processor("x86_64", "Old", frozenset(NEHALEM.split()), {})
    with pytest.raises(ToolchainError, match="built for x86-64-v3; this processor lacks abm, avx") as refused:
        refuse_foreign_isa("x86-64-v3", "cpu", processor)
    assert refused.value.where == "Old"
    refuse_foreign_isa("x86-64-v2", "cpu", processor)


X86_CPUINFO = """processor	: 0
vendor_id	: AuthenticAMD
cpu family	: 25
model		: 1
model name	: AMD EPYC  7B13
stepping	: 1
cpu MHz		: 2445.400
flags		: fpu sse2 avx2
bugs		: sysret_ss_attrs

processor	: 1
model name	: another
flags		: fpu
"""
ARM_CPUINFO = """processor	: 0
BogoMIPS	: 243.75
Features	: fp asimd
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1
"""


def _root(folder: Path, cpuinfo: bytes) -> Path:
    (folder / "proc").mkdir()
    (folder / "proc" / "cpuinfo").write_bytes(cpuinfo)
    return folder


def test_processor_of_an_x86_machine(tmp_path: Path) -> None:
    assert read_processor(_root(tmp_path, X86_CPUINFO.encode()), "x86_64") == Processor(
        "x86_64",
        "AMD EPYC 7B13",
        frozenset({"fpu", "sse2", "avx2"}),
        {"vendor": "AuthenticAMD", "family": "25", "model": "1", "stepping": "1"},
    )


def test_processor_of_an_arm_machine_has_a_name_made_of_its_numbers(tmp_path: Path) -> None:
    processor = read_processor(_root(tmp_path, ARM_CPUINFO.encode()), "aarch64")
    assert processor.name == "Arm part 0xd0c"
    assert processor.flags == {"fp", "asimd"}
    assert processor.details["variant"] == "0x3"


@pytest.mark.parametrize("cpuinfo", [b"", b"\xff\xfe\x00", b"flags\n", b": :\n\n", b"model name:\n"])
def test_a_cpuinfo_that_says_nothing_gives_no_flags_and_a_name_all_the_same(tmp_path: Path, cpuinfo: bytes) -> None:
    processor = read_processor(_root(tmp_path, cpuinfo), "x86_64")
    assert processor.flags == frozenset()
    assert processor.name == "unnamed x86_64"


def test_without_proc(tmp_path: Path) -> None:
    assert read_processor(tmp_path, "x86_64").name == "unnamed x86_64"
