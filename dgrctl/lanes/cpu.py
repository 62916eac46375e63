"""The CPU lane: its device, its build options, and the proof that a build came out as asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dgrctl.errors import BuildError
from dgrctl.lanes.cmake import Outcome, common_words
from dgrctl.lanes.isa import IsaLevel, highest
from dgrctl.lanes.lane import DeviceIdentity
from dgrctl.lanes.processor import read_processor

NAME = "cpu"

# OpenMP's idle threads spin and starve other workers of the machine. AMX crashes upstream on common quantisations. Everything
# else that could compute elsewhere than in ggml's own CPU code is off.
_FIXED = {
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
    "GGML_CPU": "ON",
    "GGML_CPU_ALL_VARIANTS": "OFF",
    "GGML_CPU_HBM": "OFF",
    "GGML_CPU_KLEIDIAI": "OFF",
    "GGML_CPU_REPACK": "ON",
    "GGML_LLAMAFILE": "ON",
    "GGML_ACCELERATE": "OFF",
    "GGML_BLAS": "OFF",
    "GGML_CUDA": "OFF",
    "GGML_HIP": "OFF",
    "GGML_METAL": "OFF",
    "GGML_VULKAN": "OFF",
}

_BACKEND = "/ggml/src/ggml-cpu/"


def obstacles(root: Path) -> list[str]:
    """A processor of an architecture for which no ISA levels are defined."""
    processor = read_processor(root)
    if highest(processor.machine, processor.flags) is None:
        return [f"no ISA level is defined for {processor.machine} processors like this {processor.name}"]
    return []


def device(root: Path) -> DeviceIdentity:
    """This machine's processor."""
    processor = read_processor(root)
    reached = highest(processor.machine, processor.flags)
    if reached is None:
        raise LookupError(f"{processor.name} has no ISA level")
    return DeviceIdentity(NAME, processor.name, reached.name, tuple(sorted(processor.flags)), processor.details)


def cmake_options(isa: IsaLevel) -> dict[str, str]:
    """ggml's options for this lane at a level."""
    return {**_FIXED, **isa.ggml_options}


def backend_flags(outcome: Outcome) -> list[str]:
    """What every file of ggml's CPU backend is compiled with, sorted: machine, code generation, language and definitions.

    Raises:
        BuildError: no such file is compiled.
    """
    commands = [command for file, command in outcome.commands.items() if _BACKEND in file]
    if not commands:
        raise BuildError("this build compiles no CPU backend", where="compile_commands.json", remedy="dgrctl build --force")
    prefixes = ("-m", "-f", "-O", "-D", "-U", "-std")
    return sorted(word for word in common_words(commands) if word.startswith(prefixes) and "prefix-map" not in word)


def check_outcome(outcome: Outcome, isa: IsaLevel, asked: Mapping[str, str]) -> None:
    """Refuses a build that came out as something else than asked for.

    Raises:
        BuildError: names the first option or flag that differs, with both values.
    """
    for option, value in asked.items():
        if outcome.options.get(option) != value:
            raise _different(f"option {option}", outcome.options.get(option), value, "CMakeCache.txt")
    backend_flags(outcome)  # there is a backend at all
    for file, command in outcome.commands.items():
        machine = {word for word in command if word.startswith("-m")}
        # Upstream selects the level for the backend's kernels alone; everything else is compiled for the lowest.
        wanted = isa.compiler_flags if _BACKEND in file else frozenset()
        if machine != wanted:
            raise _different("machine flags", " ".join(sorted(machine)), " ".join(sorted(wanted)), file)
        forbidden = [word for word in command if word.startswith("-fopenmp") or "GGML_USE_OPENMP" in word]
        if forbidden:
            raise _different("OpenMP", " ".join(forbidden), None, file)


def _different(what: str, chosen: str | None, asked: str | None, where: str) -> BuildError:
    return BuildError(
        f"the build came out as something else: {what} is {chosen or 'absent'}, asked for was {asked or 'none'}",
        where=where,
        remedy="dgrctl build --lane cpu --force; if that does not help, upstream's build changed and the lane must follow it",
    )
