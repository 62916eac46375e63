"""Inputs of a certification: held while it runs, hashed again before it is signed. And what else makes a run void, by name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from certify_checkouts import RECIPE, Checkout
from cpu_cgroups import CpuCgroup
from flocks import can_lock

CERTIFY = ("certify", "--json", "--lane", "cpu", "--recipe", RECIPE)


@contextlib.contextmanager
def comparing(checkout: Checkout) -> Iterator[subprocess.Popen[bytes]]:
    """A certification that has verified everything and now compares bits."""
    command = checkout.command(*CERTIFY)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=checkout.environment, **pipes) as process:  # type: ignore[call-overload]
        said = []
        for line in process.stderr:
            said.append(line)
            if b"Comparing" in line:
                break
        else:
            pytest.fail(b"".join(said).decode())
        try:
            yield process
        finally:
            process.kill()


def test_nobody_builds_or_repairs_what_is_being_certified(checkout: Checkout) -> None:
    checkout.lock(decode_steps=1500)
    model = (checkout.layout.state / "models").resolve() / ".locks" / "smollm2-135m-instruct-q4_1.lock"
    with comparing(checkout):
        for path in (checkout.layout.locks / "build-cpu.lock", model):
            assert not can_lock(path), path
            assert can_lock(path, shared=True), path


def another_worker(checkout: Checkout) -> None:
    """As a rebuild leaves it that takes no lock: another program of the same name, which still runs."""
    (path,) = [path for path in (checkout.layout.state / "build").resolve().rglob("dgr-worker") if path.is_file()]
    other = path.with_name("other")
    other.write_bytes(path.read_bytes() + b"\0")
    other.chmod(0o755)
    other.replace(path)


def another_recipe(checkout: Checkout) -> None:
    path = checkout.layout.recipes / f"{RECIPE}.toml"
    path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "words"), [(another_worker, "this program is not the one"), (another_recipe, "the recipe is")]
)
def test_inputs_that_change_during_a_run_void_it(checkout: Checkout, change: Callable[[Checkout], None], words: str) -> None:
    link = checkout.layout.state / "build"
    real = link.resolve()
    link.unlink()
    shutil.copytree(
        real, link, symlinks=True, ignore=lambda folder, names: {name for name in names if name.endswith((".o", ".a"))}
    )
    with comparing(checkout) as process:
        change(checkout)
        out, _ = process.communicate()
    assert process.returncode == 21
    error = json.loads(out)["error"]
    assert error["what"].startswith("changed inputs: ")
    assert words in error["what"]
    assert checkout.records()[-1]["reason"] == error["what"]
    assert list(checkout.layout.evidence.rglob("*.json")) == []


def test_a_lock_with_looks_ends_at_the_first_that_decides(checkout: Checkout) -> None:
    checkout.lock(rule="looks = [8, 16]")
    finished = checkout.certify()
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert result["speed"]["pairs"] == 8
    assert checkout.run("evidence", "verify", result["evidence"]).returncode == 0


def test_throttling_while_speed_is_measured_voids_the_run_by_name(
    checkout: Checkout, cpu_cgroup: Callable[[int], CpuCgroup]
) -> None:
    finished = cpu_cgroup(50).run(checkout.command(*CERTIFY), checkout.environment)
    assert finished.returncode == 21, finished.stderr
    assert "a CPU quota allows 0.5 processors" in finished.stderr
    error = json.loads(finished.stdout)["error"]
    assert error["what"].startswith("throttling: a CPU quota stopped the processes")
    assert checkout.records()[-1]["reason"] == error["what"]
    assert list(checkout.layout.evidence.rglob("*.json")) == []


def test_run_warns_of_more_threads_than_the_quota(checkout: Checkout, cpu_cgroup: Callable[[int], CpuCgroup]) -> None:
    command = checkout.command("run", "--recipe", RECIPE, "--prompt", "Hi", "--max-tokens", "2")
    finished = cpu_cgroup(50).run(command, os.environ | checkout.environment)
    assert finished.returncode == 0, finished.stderr
    assert "warning: the recipe asks for 1 threads per stage, and a CPU quota allows 0.5 processors" in finished.stderr
