"""What /proc/cpuinfo says of this machine's processor. Format: proc(5); one block a CPU, the first one stands for all."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

# Arm kernels print numbers for names; the vendors are from the Main ID Register's definition (Arm ARM, MIDR_EL1).
_ARM_IMPLEMENTERS = {"0x41": "Arm", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x51": "Qualcomm", "0x61": "Apple", "0xc0": "Ampere"}


@dataclass(frozen=True)
class Processor:
    """``machine`` as uname(2) names it; ``details`` are the numbers that tell steppings apart, by name."""

    machine: str
    name: str
    flags: frozenset[str]
    details: dict[str, str]


def read_processor(root: Path = Path("/"), machine: str | None = None) -> Processor:
    """Reads the processor; what the kernel does not show is left out. ``root`` is where proc/ lies."""
    machine = machine or platform.machine()
    try:
        text = (root / "proc" / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), " ".join(value.split()))
    flags = frozenset((fields.get("flags") or fields.get("Features") or "").split())
    wanted = {
        "vendor": fields.get("vendor_id") or fields.get("CPU implementer"),
        "family": fields.get("cpu family") or fields.get("CPU architecture"),
        "model": fields.get("model") or fields.get("CPU part"),
        "stepping": fields.get("stepping") or fields.get("CPU revision"),
        "variant": fields.get("CPU variant"),
    }
    details = {key: value for key, value in wanted.items() if value}
    return Processor(machine, fields.get("model name") or _arm_name(fields) or f"unnamed {machine}", flags, details)


def _arm_name(fields: dict[str, str]) -> str | None:
    implementer, part = fields.get("CPU implementer"), fields.get("CPU part")
    if implementer is None or part is None:
        return None
    return f"{_ARM_IMPLEMENTERS.get(implementer, f'implementer {implementer}')} part {part}"
