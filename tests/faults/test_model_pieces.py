"""A part that travels in pieces: whole or absent whatever happens, and only bad pieces are brought again."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest
from pulling import Puller
from small_models import make_tiny_model

from dgrctl.errors import IntegrityError

PIECES = 3


@pytest.fixture
def puller(tmp_path: Path) -> Puller:
    tiny = make_tiny_model(tmp_path / "checkout", pieces=PIECES, filler=8192)
    return Puller(tiny, str(tiny.links), tmp_path / "storage")


def downloaded(stderr: str) -> list[str]:
    return [f"tiny-model-{piece}" for piece in range(PIECES) if f"Downloading tiny-model-{piece}" in stderr]


def test_pieces_become_one_part(puller: Puller) -> None:
    pulled = puller.pull()
    assert pulled.returncode == 0, pulled.stderr
    assert len(downloaded(pulled.stderr)) == PIECES
    assert puller.whole()
    again = puller.pull()
    assert "nothing to do" in again.stderr
    assert not downloaded(again.stderr)


def test_killed_at_every_step_one_after_the_other(puller: Puller) -> None:
    step = 1
    while (killed := puller.pull(mode="kill", step=str(step))).returncode == -signal.SIGKILL:
        step += 2
    assert killed.returncode == 0, killed.stderr
    assert step > 10
    assert puller.whole()


@pytest.mark.parametrize("bad", range(PIECES))
def test_a_bad_byte_brings_its_own_piece_again_and_no_other(puller: Puller, bad: int) -> None:
    assert puller.pull().returncode == 0
    stored = puller.folder / puller.tiny.part_name
    data = bytearray(stored.read_bytes())
    data[len(data) * bad // PIECES + 5] ^= 1
    stored.write_bytes(data)
    refused = puller.pull()
    assert refused.returncode == IntegrityError.exit_code
    assert "--repair" in refused.stderr
    repaired = puller.pull("--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert downloaded(repaired.stderr) == [f"tiny-model-{bad}"]
    assert puller.whole()


def test_a_part_that_was_cut_short_is_brought_anew(puller: Puller) -> None:
    assert puller.pull().returncode == 0
    stored = puller.folder / puller.tiny.part_name
    stored.write_bytes(stored.read_bytes()[:-1])
    repaired = puller.pull("--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert len(downloaded(repaired.stderr)) == PIECES
    assert puller.whole()


@pytest.mark.parametrize("what", ["piece", "part"])
def test_bytes_other_than_the_recorded_ones_never_get_the_name(puller: Puller, what: str) -> None:
    manifest = puller.tiny.manifest
    stored = puller.folder / puller.tiny.part_name
    text = manifest.read_text()
    recorded = sha256_of(puller.tiny.part) if what == "part" else text.rpartition('sha256 = "')[2][:64]
    manifest.write_text(text.replace(recorded, "0" * 64))
    refused = puller.pull()
    assert refused.returncode == IntegrityError.exit_code, refused.stderr
    assert "SHA-256" in refused.stderr
    assert not stored.exists()


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
