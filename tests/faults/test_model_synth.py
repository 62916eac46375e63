"""Making a fixture that is killed, meets a full disk or finds something in its place: never half a model, always a reason."""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from pulling import Completed, Puller
from small_models import make_tiny_model

from dgrctl.errors import InputError, IntegrityError, StorageError

MIB = 1024 * 1024
ID = "deepseek4-fixture-4l-f16-e32-s1-p3"
MAKE = ("synth", "deepseek4", "--layers", "4", "--embedding", "32", "--parts", "3")
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@pytest.fixture
def maker(tmp_path: Path) -> Puller:
    (tmp_path / "storage").mkdir()
    return Puller(make_tiny_model(tmp_path / "checkout"), "", tmp_path / "storage")


def make(maker: Puller, *options: str, mode: str = "kill", step: str = "0") -> Completed:
    return maker.run(*MAKE, *options, mode=mode, step=step)


def whole(folder: Path) -> bool:
    """Whether ``folder`` holds exactly the parts that its manifest names, byte for byte."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    named = {part["name"]: part["sha256"] for part in manifest["parts"]}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.gguf")}
    return bool(named) and named == found and len(list(folder.iterdir())) == len(named) + 1


def left_over(maker: Puller) -> list[str]:
    return sorted(path.name for path in maker.storage.iterdir() if path.name not in (".locks", ID))


def test_a_second_run_hashes_and_does_nothing(maker: Puller) -> None:
    assert make(maker).returncode == 0
    again = make(maker, "--json")
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr
    assert json.loads(again.stdout)["changed"] is False
    assert json.loads(again.stdout)["class"] == "fixture"
    assert whole(maker.storage / ID)


def test_killed_at_every_step_one_after_the_other(maker: Puller) -> None:
    step = 1
    while (killed := make(maker, step=str(step))).returncode == -signal.SIGKILL:
        assert not (maker.storage / ID).exists() or whole(maker.storage / ID)
        step += 1
    assert killed.returncode == 0, killed.stderr
    assert step > 8
    assert whole(maker.storage / ID)
    assert left_over(maker) == []


def test_killed_in_the_middle_of_a_write(maker: Puller) -> None:
    killed = make(maker, mode="burst", step=str(100 * 1024))
    assert killed.returncode == -signal.SIGXFSZ, killed.stderr
    assert not (maker.storage / ID).exists()
    assert make(maker).returncode == 0
    assert whole(maker.storage / ID)
    assert left_over(maker) == []


def test_two_at_once_take_turns(maker: Puller) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = maker.command(*MAKE, mode="hold", step="os.rename:" + ID)
        environment = maker.environment | {"HELD_FD": str(theirs.fileno())}
        with subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL) as first:
            theirs.close()
            assert ours.recv(4) == b"held"
            second = subprocess.Popen(maker.command(*MAKE), env=maker.environment, stderr=subprocess.PIPE, text=True)
            with second:
                assert second.stderr is not None
                waiting = second.stderr.readline()
                ours.close()
                rest = second.stderr.read()
            first.wait()
    assert f"holds the lock 'model {ID}" in waiting
    assert (first.returncode, second.returncode) == (0, 0), rest
    assert "nothing to do" in rest
    assert whole(maker.storage / ID)


def test_a_changed_byte_is_found_and_named(maker: Puller) -> None:
    assert make(maker).returncode == 0
    part = maker.storage / ID / f"{ID.removesuffix('-p3')}-00002-of-00003.gguf"
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    for command in (MAKE, ("verify", ID)):
        refused = maker.run(*command, "--json")
        error = json.loads(refused.stdout)["error"]
        assert refused.returncode == IntegrityError.exit_code
        assert part.name in error["what"]
        assert "again" in error["remedy"] or "anew" in error["remedy"]
    assert part.read_bytes() == data


def test_a_missing_part_is_found_and_named(maker: Puller) -> None:
    assert make(maker).returncode == 0
    (maker.storage / ID / f"{ID.removesuffix('-p3')}-00003-of-00003.gguf").unlink()
    assert make(maker).returncode == IntegrityError.exit_code
    assert maker.run("verify", ID).returncode == IntegrityError.exit_code


def test_what_stands_in_the_place_is_left_alone(maker: Puller, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, what in (("full", "no fixture model"), ("file", "a file stands")):
        refused = make(maker, "--output", str(tmp_path / name))
        assert refused.returncode == StorageError.exit_code
        assert what in refused.stderr
    assert make(maker, "--output", str(tmp_path / "one")).returncode == 0
    other = make(maker, "--seed", "2", "--output", str(tmp_path / "one"))
    assert other.returncode == StorageError.exit_code
    assert "another fixture" in other.stderr
    assert whole(tmp_path / "one")


def test_home_is_refused(maker: Puller, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/home")
    for place in ("/home/someone/model", str(tmp_path / "link" / "model")):
        refused = make(maker, "--output", place)
        assert refused.returncode == StorageError.exit_code
        assert "not kept below /home" in refused.stderr


def test_a_fixture_is_not_pulled(maker: Puller) -> None:
    assert make(maker).returncode == 0
    refused = maker.run("pull", ID)
    assert refused.returncode == InputError.exit_code
    assert "made, not pulled" in refused.stderr


def test_a_fixture_is_listed_as_one(maker: Puller) -> None:
    assert make(maker).returncode == 0
    listed = {model["id"]: model for model in json.loads(maker.run("list", "--json").stdout)["models"]}
    assert (listed[ID]["class"], listed[ID]["state"]) == ("fixture", "present")


@pytest.mark.parametrize(("size", "step"), [(MIB, "0"), (4 * MIB, "os.mkdir:.partial")], ids=["too small", "filling up"])
def test_a_full_disk(maker: Puller, size: int, step: str) -> None:
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace can be made on this machine: {probe.stderr.strip()}")
    command = shlex.join(maker.command(*MAKE, "--json", mode="fill", step=step))
    script = (
        f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(maker.storage))} || exit 99\n"
        f"{command}; echo code $?; find {maker.storage} -name '*.gguf'"
    )
    done = subprocess.run([*NAMESPACE, "bash", "-c", script], capture_output=True, text=True, env=maker.environment, check=False)
    assert done.stdout.endswith(f"code {StorageError.exit_code}\n"), done.stdout + done.stderr
    assert "more bytes, and" in done.stdout or "No space left" in done.stdout
