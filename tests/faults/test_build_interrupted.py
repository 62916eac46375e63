"""Builds that are killed, watched, edited under or starved of disk: the next one waits for what still runs, and completes."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_build import SmallBuild, StoppingCompiler

from dgrctl.errors import BuildError, StorageError
from dgrctl.lanes.build import verified_build
from dgrctl.lanes.record import load_record


@pytest.fixture
def checkout(tmp_path: Path) -> SmallBuild:
    return SmallBuild(tmp_path)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoppingCompiler:
    """Stops before it compiles llama.cpp, in whichever build comes first."""
    compiler = StoppingCompiler(tmp_path / "compiler", "src/llama.cpp")
    monkeypatch.setenv("CXX", str(compiler.program))
    return compiler


def _waits(process: subprocess.Popen[str]) -> str:
    """The line in which a second build says for whom it waits."""
    assert process.stderr is not None
    return next(line for line in process.stderr if line.startswith("waiting"))


@pytest.fixture
def stopped(checkout: SmallBuild, compiler: StoppingCompiler) -> Iterator[subprocess.Popen[str]]:
    """A build in the middle of a compile."""
    with checkout.start_build() as process:
        compiler.wait_until_stopped()
        yield process
        process.kill()


def test_two_at_once(checkout: SmallBuild, compiler: StoppingCompiler, stopped: subprocess.Popen[str]) -> None:
    with checkout.start_build() as second:
        assert f"waiting for process {stopped.pid}" in _waits(second)
        compiler.let_go()
        assert stopped.wait() == 0
        assert "nothing to do" in second.communicate()[1]
        assert second.returncode == 0


def test_killed_while_compiling(checkout: SmallBuild, compiler: StoppingCompiler, stopped: subprocess.Popen[str]) -> None:
    """Its compilers end with it, however it ends: the next one need not wait until somebody lets them go."""
    stopped.kill()
    stopped.wait()
    done = checkout.run_build(CXX=str(compiler.program))
    assert done.returncode == 0, done.stderr
    verified_build(checkout.layout, "cpu")


def test_terminated_while_compiling(checkout: SmallBuild, compiler: StoppingCompiler, stopped: subprocess.Popen[str]) -> None:
    """It takes its compilers with it: the next one waits for nobody."""
    stopped.send_signal(signal.SIGTERM)
    stopped.communicate()
    assert stopped.returncode == 128 + signal.SIGTERM
    done = checkout.run_build(CXX=str(compiler.program))
    assert done.returncode == 0
    assert "waiting" not in done.stderr


def test_edited_while_compiling(checkout: SmallBuild, compiler: StoppingCompiler, stopped: subprocess.Popen[str]) -> None:
    """Nobody could say what such a build was made from, so nothing is recorded of it."""
    checkout.write("worker/test.cpp", "int main() { return 2; }\n")
    compiler.let_go()
    assert "edited while it was built" in stopped.communicate()[1]
    assert stopped.returncode == BuildError.exit_code
    assert load_record(checkout.layout, "cpu") is None
    assert checkout.build().built == ("dgr-reference", "dgr-worker")


@pytest.mark.parametrize(
    "step",
    [
        "os.mkdir:source",
        "os.rename:/at/cpu",
        "os.rename:query.json",
        "subprocess.Popen:cmake",
        "os.rename:configured",
        "subprocess.Popen:ninja",
        "os.rename:records/cpu.json",
    ],
)
def test_killed_before(checkout: SmallBuild, step: str) -> None:
    assert checkout.run_build("--role", "reference", step=step).returncode == -signal.SIGKILL
    done = checkout.run_build("--role", "reference")
    assert done.returncode == 0, done.stderr
    assert checkout.build("reference").built == ()


def test_killed_between_the_two_keeps_the_first(checkout: SmallBuild) -> None:
    record = checkout.build("reference").record
    assert checkout.run_build(step="subprocess.Popen:ninja").returncode == -signal.SIGKILL
    assert checkout.build().built == ("dgr-worker",)
    assert verified_build(checkout.layout, "cpu").binaries["dgr-reference"] == record.binaries["dgr-reference"]


@pytest.mark.parametrize("kilobytes", [8, 160, 240])
def test_the_disk_fills_up(checkout: SmallBuild, kilobytes: int) -> None:
    """At several points: laying out, configuring, compiling. With space the same command completes."""
    namespace = ("unshare", "--user", "--map-root-user", "--mount")
    probe = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace can be made on this machine: {probe.stderr.strip()}")
    builds = checkout.layout.builds
    builds.mkdir()
    command = shlex.join(checkout.command("build", "--lane", "cpu", "--role", "reference"))
    place = shlex.quote(str(builds))
    script = (
        f"mount -t tmpfs -o size={kilobytes}k tmpfs {place} || exit 99; {command}; echo code $?;"
        f"mount -o remount,size=64m {place} && {command}; echo code $?"
    )
    done = subprocess.run(
        [*namespace, "sh", "-c", script], capture_output=True, text=True, env=checkout.environment(), check=False
    )
    assert done.stdout == f"code {StorageError.exit_code}\ncode 0\n", done.stderr
    assert "Traceback" not in done.stderr
    assert "free space" in done.stderr
