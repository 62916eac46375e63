"""Disks that are full, small, limited or read-only: an error that says so, and nothing complete is lost."""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pulling import Completed, Puller
from small_models import MODEL_ID, TinyModel, make_tiny_model

from dgrctl.errors import StorageError

MIB = 1024 * 1024
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return make_tiny_model(tmp_path / "checkout", filler=2 * MIB)


@pytest.fixture
def puller(tiny: TinyModel, tmp_path: Path) -> Puller:
    """With storage on a disk of its own, which is there inside :func:`on_small_disk` alone."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    return Puller(tiny, str(tiny.links), mounted)


def on_small_disk(puller: Puller, size: int, script: str) -> Completed:
    """Runs ``script`` where a tmpfs of ``size`` bytes is mounted on the storage."""
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace can be made on this machine: {probe.stderr.strip()}")
    mount = f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(puller.storage))} || exit 99\n"
    return subprocess.run(
        [*NAMESPACE, "bash", "-c", mount + script], capture_output=True, text=True, env=puller.environment, check=False
    )


def failure(output: str) -> dict[str, str]:
    """The error document that --json printed first."""
    document: dict[str, str] = json.JSONDecoder().raw_decode(output)[0]["error"]
    return document


def command(puller: Puller, *arguments: str, mode: str = "kill", step: str = "0") -> str:
    return shlex.join(puller.command(*arguments, mode=mode, step=step))


def test_a_disk_that_is_too_small_is_found_out_first(puller: Puller) -> None:
    pull = command(puller, "pull", MODEL_ID, "--json")
    done = on_small_disk(puller, MIB, f"{pull}; echo code $?; find {puller.storage} -type f -not -name '*.lock'")
    error = failure(done.stdout)
    assert error["class"] == "storage"
    assert "more bytes, and" in error["what"]
    assert "Downloading" not in done.stderr
    assert done.stdout.endswith(f"code {StorageError.exit_code}\n")  # and no file is left


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("subprocess.Popen:", "the disk filled up while tiny-model-0==1.0 was downloaded"),
        ("open:.partial", "No space left"),
    ],
)
def test_a_disk_that_fills_up_meanwhile(puller: Puller, step: str, expected: str) -> None:
    filling = command(puller, "pull", MODEL_ID, "--json", mode="fill", step=step)
    again = command(puller, "pull", MODEL_ID)
    script = (
        f"{filling}; echo code $?; cd {puller.storage}; ls -A {MODEL_ID}/*.gguf; rm filler; {again} && "
        f"find . -type f -not -name '*.lock'"
    )
    done = on_small_disk(puller, 4 * MIB, script)
    error = failure(done.stdout)
    assert error["class"] == "storage"
    assert expected in error["what"]
    assert "free space" in error["remedy"]
    assert "Traceback" not in done.stderr
    # No part had its name while the disk was full; with space again the same command completed and left nothing else.
    assert done.stdout.endswith(f"code {StorageError.exit_code}\n./{MODEL_ID}/{puller.tiny.part_name}\n"), done.stderr


def test_what_is_complete_is_kept(tmp_path: Path) -> None:
    """The second part of two does not fit. The first stays, and is not brought again."""
    tiny = make_tiny_model(tmp_path / "checkout", count=2, filler=2 * MIB)
    (tmp_path / "mounted").mkdir()
    puller = Puller(tiny, str(tiny.links), tmp_path / "mounted")
    first, second = tiny.parts
    filling = command(puller, "pull", MODEL_ID, mode="fill", step=f"open:.{second}.partial")
    again = command(puller, "pull", MODEL_ID, "--json")
    done = on_small_disk(puller, 6 * MIB, f"{filling}; echo code $?; ls {puller.folder}; rm {puller.storage}/filler; {again}")
    code, listed, rest = done.stdout.split("\n", 2)
    assert (code, listed) == (f"code {StorageError.exit_code}", first)
    assert json.loads(rest)["brought"] == [second]


def test_space_that_a_pull_needs_counts_what_is_there(tmp_path: Path) -> None:
    """With one part of two there, a disk suffices that is too small for both at once."""
    tiny = make_tiny_model(tmp_path / "checkout", count=2, filler=2 * MIB)
    (tmp_path / "mounted").mkdir()
    puller = Puller(tiny, str(tiny.links), tmp_path / "mounted")
    first = next(iter(tiny.parts))
    (tmp_path / "first").write_bytes(tiny.parts[first])
    pull = command(puller, "pull", MODEL_ID)
    place = f"mkdir {puller.folder}; cp {tmp_path / 'first'} {puller.folder / first}"
    done = on_small_disk(puller, 4 * MIB + 512 * 1024, f"{place}; {pull}; echo code $?")
    assert done.stdout == "code 0\n", done.stderr
    empty = on_small_disk(puller, 3 * MIB, f"{pull}; echo code $?")
    assert empty.stdout == f"code {StorageError.exit_code}\n"


def test_a_limit_on_the_size_of_files(puller: Puller) -> None:
    done = subprocess.run(
        puller.command("pull", MODEL_ID, "--json"),
        capture_output=True,
        text=True,
        env=puller.environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB)),
        check=False,
    )
    assert done.returncode == StorageError.exit_code
    assert "ulimit" in failure(done.stdout)["remedy"]
    assert list(puller.folder.glob("*")) == list(puller.folder.glob(".incoming"))
    assert puller.pull().returncode == 0
    assert puller.whole()


def test_a_read_only_disk_serves_and_takes_nothing(puller: Puller) -> None:
    """A complete set needs no lock and no write. One that is not there cannot be brought."""
    stored = replace(puller, storage=puller.storage)
    pull, verify = command(stored, "pull", MODEL_ID), command(stored, "verify", MODEL_ID)
    remount = f"mount -o remount,{{}} {puller.storage}"
    script = (
        f"{remount.format('ro')}; {pull}; echo code $?; {remount.format('rw')}; "
        f"{pull} && {remount.format('ro')} && {verify}; echo code $?; {pull}; echo code $?"
    )
    done = on_small_disk(puller, 8 * MIB, script)
    assert done.stdout == f"code {StorageError.exit_code}\ncode 0\ncode 0\n", done.stderr
