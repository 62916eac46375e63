"""Instruction set levels: what a CPU-lane binary may use, as part of the lane's identity.

x86-64 levels are those of the x86-64 psABI supplement (section 3.1.1, "Low-level system information"). Its AMX, VNNI and
BF16 extensions belong to no level and are never enabled here. Arm levels are -march strings as GCC and Clang take them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from dgrctl.errors import UsageError


@dataclass(frozen=True)
class IsaLevel:
    """One level.

    Attributes:
        machine: As uname(2) names the architecture: "x86_64" or "aarch64".
        cpu_flags: What /proc/cpuinfo must list for a CPU to have the level; includes the lower levels'.
        ggml_options: Options of ggml's build that select it; all others of their kind are off.
        compiler_flags: What ggml's CPU backend must then have been compiled with, and no other flag of that kind.
    """

    name: str
    machine: str
    cpu_flags: frozenset[str]
    ggml_options: Mapping[str, str]
    compiler_flags: frozenset[str]


# Every option of ggml that changes x86 code; each is set explicitly so that no default can.
_X86_SWITCHES = (
    "GGML_SSE42", "GGML_AVX", "GGML_AVX_VNNI", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C", "GGML_AVX512",
    "GGML_AVX512_VBMI", "GGML_AVX512_VNNI", "GGML_AVX512_BF16", "GGML_AMX_TILE", "GGML_AMX_INT8", "GGML_AMX_BF16",
)  # fmt: skip

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

_V3_ON = frozenset({"GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C"})
_V3_COMPILED = frozenset({"-msse4.2", "-mavx", "-mavx2", "-mbmi2", "-mfma", "-mf16c"})
_V4_COMPILED = _V3_COMPILED | {"-mavx512f", "-mavx512cd", "-mavx512vl", "-mavx512dq", "-mavx512bw"}


def _x86(name: str, cpu_flags: Set[str], switched_on: Set[str], compiled: Set[str]) -> IsaLevel:
    options = {switch: "ON" if switch in switched_on else "OFF" for switch in _X86_SWITCHES}
    return IsaLevel(name, "x86_64", frozenset(cpu_flags), options, frozenset(compiled))


def _arm(name: str, cpu_flags: Set[str]) -> IsaLevel:
    return IsaLevel(name, "aarch64", frozenset(cpu_flags), {"GGML_CPU_ARM_ARCH": name}, frozenset({f"-march={name}"}))


# Of one machine from the lowest to the highest.
LEVELS = (
    _x86("x86-64-v1", frozenset(), frozenset(), frozenset()),
    _x86("x86-64-v2", _V2, {"GGML_SSE42"}, {"-msse4.2"}),
    _x86("x86-64-v3", _V3, _V3_ON, _V3_COMPILED),
    _x86("x86-64-v4", _V4, _V3_ON | {"GGML_AVX512"}, _V4_COMPILED),
    _arm("armv8-a", {"asimd"}),
    _arm("armv8.2-a+dotprod+fp16", {"asimd", "asimddp", "asimdhp", "fphp"}),
    _arm("armv8.2-a+dotprod+fp16+i8mm", {"asimd", "asimddp", "asimdhp", "fphp", "i8mm"}),
)


def level(name: str, machine: str) -> IsaLevel:
    """The level that a person named.

    Raises:
        UsageError: there is no such level, or it is another architecture's.
    """
    for known in LEVELS:
        if known.name == name and known.machine == machine:
            return known
    names = [known.name for known in LEVELS if known.machine == machine]
    raise UsageError(
        f"there is no ISA level {name!r} for {machine}",
        where="--isa",
        remedy=f"name one of {', '.join(names)}" if names else "build on an x86_64 or aarch64 machine",
    )


def highest(machine: str, cpu_flags: Set[str]) -> IsaLevel | None:
    """The highest level whose every flag the CPU lists; None for an architecture without levels."""
    reached = [known for known in LEVELS if known.machine == machine and known.cpu_flags <= cpu_flags]
    return reached[-1] if reached else None


def lacking(wanted: IsaLevel, cpu_flags: Set[str]) -> list[str]:
    """Flags of ``wanted`` that the CPU does not list, sorted; empty if it can run such a binary."""
    return sorted(wanted.cpu_flags - cpu_flags)
