"""Writing files whole, and their digests."""

from pathlib import Path

from dgrctl.files import sha256_file, write_atomic


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    write_atomic(path, b"old")
    write_atomic(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_digest_counts_every_byte_that_it_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    counts: list[int] = []
    assert sha256_file(path, counts.append) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sum(counts) == 3
