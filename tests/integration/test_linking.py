"""What the built programs need of the system that they run on."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dgrctl.lanes.record import BuildRecord

# The GNU C library's own; old ones have threads, clocks and dlopen apart.
C_LIBRARY = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux[a-z0-9-]*)\.so\.\d+")


@pytest.mark.parametrize("role", ["worker", "reference"])
def test_a_program_needs_the_c_library_alone(verified_build: BuildRecord, role: str) -> None:
    """Its digest covers the rest of the code that runs in it, and no code of others takes memory."""
    program = verified_build.worker if role == "worker" else verified_build.reference
    headers = subprocess.run(["objdump", "--private-headers", program], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"^ +NEEDED +(\S+)$", headers, re.MULTILINE)
    assert "libc.so.6" in needed
    assert [name for name in needed if not C_LIBRARY.fullmatch(name)] == []
