"""Locks: the checked-in ones, and every way in which a lock is none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
from certifications import LOCK

from dgrctl.certify.prompts import load_prompt_set
from dgrctl.documents import load_toml
from dgrctl.errors import InputError
from dgrctl.evidence.lock import LockFile, load_lock, load_locks
from dgrctl.files import read_regular
from dgrctl.layout import Layout

CHECKED_IN = Path(__file__).parents[3] / "certs" / "locks"


def written(folder: Path, text: str, name: str = "cpu.tiny.v1.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_lock_is_named_by_the_digest_of_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, LOCK)
    lock = load_lock(path)
    assert lock.digest() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert lock.name == "cpu.tiny.v1"
    assert load_locks(tmp_path) == [lock]
    assert load_locks(tmp_path / "absent") == []


def test_every_checked_in_lock_names_a_prompt_set_that_is_there() -> None:
    locks = load_locks(CHECKED_IN)
    assert locks
    for lock in locks:
        prompts = CHECKED_IN.parent / "prompts" / f"{lock.prompt_set.name}.toml"
        assert hashlib.sha256(prompts.read_bytes()).hexdigest() == lock.prompt_set.sha256


def test_the_first_lock_is_what_it_was() -> None:
    """It is never edited after a result: this test, and all evidence, would say so."""
    path = CHECKED_IN / "cpu.smollm2-135m.v1.toml"
    document = load_toml(path, LockFile, what="lock")
    assert (document.speed.min_ratio_prefill, document.speed.min_ratio_decode) == ("0.80", "0.80")
    assert (document.speed.pairs, document.speed.confidence, document.parity.decode_steps) == (15, "0.95", 64)


def test_the_second_lock_says_how_the_first_is_measured_and_demands_the_same() -> None:
    first, second = (load_lock(CHECKED_IN / f"cpu.smollm2-135m.v{version}.toml") for version in (1, 2))
    assert (first.speed.decode_slice_tokens, second.speed.decode_slice_tokens) == (0, 8)
    assert msgspec.structs.replace(second.speed, decode_slice_tokens=0) == first.speed
    assert (second.parity, second.prompt_set) == (first.parity, first.prompt_set)


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1", "schema = true", "schema"),
        ("schema = 1\n", "", "schema"),
        ("version = 1", "version = 0", "version"),
        ('id = "cpu.tiny"', 'id = "../cpu"', "id"),
        ('class = "real-hardware"', 'class = "hardware"', "class"),
        ('class = "real-hardware"', 'evidence_class = "real-hardware"', "class"),
        ("valid_days = 90", "valid_days = 0", "valid_days"),
        ("valid_days = 90", 'valid_days = "90"', "valid_days"),
        ('locked_at = "2026-01-01"', 'locked_at = "soon"', "locked_at"),
        ("prompts = 2", "prompts = 2\nextra = 1", "prompt_set"),
        ('require = "bit-identical"', 'require = "close enough"', "parity.require"),
        ("decode_steps = 4", "decode_steps = 0", "parity.decode_steps"),
        ('["all", "last"]', "[]", "parity.outputs"),
        ('["all", "last"]', '["all", "all"]', "parity.outputs"),
        ('["all", "last"]', '["some"]', "parity.outputs"),
        ("warmup = 1", "warmup = 0", "speed.warmup"),
        ("decode_slice_tokens = 8", "decode_slice_tokens = -1", "speed.decode_slice_tokens"),
        ("pairs = 7", "pairs = 4", "speed.pairs"),
        ("pairs = 7", "pairs = 1000000", "speed.pairs"),
        ("generate_tokens = 8", "generate_tokens = 1", "speed.generate_tokens"),
        ('min_ratio_decode = "0.80"', "min_ratio_decode = 0.80", "speed.min_ratio_decode"),
        ('min_ratio_decode = "0.80"', 'min_ratio_decode = "-0.80"', "speed.min_ratio_decode"),
        ('min_ratio_decode = "0.80"', 'min_ratio_decode = "8e-1"', "speed.min_ratio_decode"),
        ('min_ratio_decode = "0.80"\n', "", "speed"),
        ('confidence = "0.95"', 'confidence = "0.10"', "speed.confidence"),
        ('confidence = "0.95"', 'confidence = "1.0"', "speed.confidence"),
        ("bootstrap_resamples = 1000", "bootstrap_resamples = 10", "speed.bootstrap_resamples"),
        ("bootstrap_resamples = 1000", "bootstrap_resamples = 1000000000", "speed.bootstrap_resamples"),
        ("valid_days = 90", "valid_days = 90\nvalid_days = 90", "valid_days"),
        ("[speed]", "[speed", "cpu.tiny.v1.toml"),
    ],
)
def test_a_malformed_lock_is_refused_with_file_and_field(tmp_path: Path, before: str, after: str, field: str) -> None:
    assert before in LOCK
    path = written(tmp_path, LOCK.replace(before, after, 1))
    with pytest.raises(InputError) as caught:
        load_lock(path)
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(path))
    assert field in f"{caught.value.where} {caught.value.what}"
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["cpu.tiny.v2.toml", "cpu.other.v1.toml", "tiny.toml"])
def test_a_lock_under_another_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="calls itself"):
        load_lock(written(tmp_path, LOCK, name))


def test_a_missing_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such lock"):
        load_lock(tmp_path / "absent.v1.toml")


def test_a_digest_is_of_the_bytes_that_were_parsed(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever replaces a file while it is read gets neither the old digest for the new content nor the reverse."""

    def replaced_after(path: Path, limit: int | None = None) -> bytes:
        data = read_regular(path, limit)
        path.write_bytes(data + b"# replaced\n")
        return data

    lock, prompts = layout.certs / "locks" / "cpu.tiny.v1.toml", layout.certs / "prompts" / "core.v1.toml"
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (lock, prompts)]
    monkeypatch.setattr("dgrctl.documents.read_regular", replaced_after)
    assert load_lock(lock).digest() == before[0]
    load_prompt_set(prompts, sha256=before[1])
