"""scripts/system-packages.sh: installs only as root or with a sudo that asks nothing, and otherwise prints what to type.

apt-get, sudo and id are stand-ins that write down how they were called: no test may install anything.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dgrctl.lanes.toolchain import BUILD, CHECKS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "system-packages.sh"
PACKAGES = " ".join(sorted({requirement.package for requirement in (*BUILD, *CHECKS)}))


class Machine:
    """A machine on which nothing is installed."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._calls = folder / "calls"
        for name in ("dirname", "env"):
            (self._bin / name).symlink_to(str(shutil.which(name)))

    def has(self, name: str, script: str = "") -> None:
        """Puts a stand-in on PATH."""
        path = self._bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._calls}\n{script}\n')
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        command = ["/bin/bash", str(SCRIPT), sys.executable]
        return subprocess.run(command, env={"PATH": str(self._bin)}, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def _install(calls: list[str]) -> str:
    return next(call for call in calls if call.startswith("apt-get") and " install " in call)


def test_a_user_without_rights_is_told_the_exact_command(machine: Machine) -> None:
    machine.has("apt-get")
    machine.has("id", "echo 1000")
    done = machine.run()
    assert done.returncode == 1
    assert f"  sudo apt-get update && sudo apt-get install --no-install-recommends {PACKAGES}\n" in done.stderr
    assert [call for call in machine.calls if call.startswith("apt-get")] == []


def test_a_sudo_that_asks_for_a_password_is_not_used(machine: Machine) -> None:
    machine.has("apt-get")
    machine.has("id", "echo 1000")
    machine.has("sudo", "exit 1")
    assert machine.run().returncode == 1
    assert machine.calls == ["id -u", "sudo --non-interactive true"]


def test_a_sudo_that_asks_nothing_is_used(machine: Machine) -> None:
    machine.has("apt-get")
    machine.has("id", "echo 1000")
    machine.has("sudo", 'shift; exec "$@"')
    machine.has("true")
    machine.run()
    assert _install(machine.calls).endswith(f"install --yes --no-install-recommends {PACKAGES}")


def test_root_installs_what_is_missing_and_looks_again(machine: Machine) -> None:
    machine.has("apt-get")
    machine.has("id", "echo 0")
    done = machine.run()
    assert machine.calls[1].endswith("update")
    assert _install(machine.calls).endswith(f"install --yes --no-install-recommends {PACKAGES}")
    # The stand-in installed nothing.
    assert done.returncode == 1
    assert "still missing after the installation" in done.stderr


@pytest.mark.parametrize("failing", ["update", "install"])
def test_an_apt_get_that_fails_is_not_passed_over(machine: Machine, failing: str) -> None:
    machine.has("apt-get", f'case "$*" in *{failing}*) exit 100;; esac')
    machine.has("id", "echo 0")
    done = machine.run()
    assert done.returncode == 100
    assert "still missing" not in done.stderr


def test_a_system_without_apt_get_is_told_what_to_bring(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 1
    assert "this system has no apt-get" in done.stderr
    assert PACKAGES in done.stderr
