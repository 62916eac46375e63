"""The header reader agrees with the gguf package on good files and refuses every kind of bad one without harm."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_models import write_gguf

from dgrctl.artifacts.gguf_header import MAX_HEADER_BYTES, GgufHeader, read_header
from dgrctl.artifacts.inventory import take_inventory
from dgrctl.errors import InputError

_STRING, _UINT32, _ARRAY = 8, 4, 9


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def whole(pairs: list[bytes], tensors: list[bytes], data: int = 1024, *, pair_count: int | None = None) -> bytes:
    counts = struct.pack("<IQQ", 3, len(tensors), len(pairs) if pair_count is None else pair_count)
    header = b"GGUF" + counts + b"".join(pairs) + b"".join(tensors)
    return header + bytes(-len(header) % 32 + data)


def refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_header(path)
    assert caught.value.where == str(path)
    assert caught.value.remedy
    return caught.value.what


def test_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", layers=3, tied=False)
    header = read_header(path)
    theirs = gguf.GGUFReader(path)
    assert [(one.name, one.type_name, one.bytes) for one in header.tensors] == [
        (one.name, one.tensor_type.name, one.n_bytes) for one in theirs.tensors
    ]
    assert [one.shape for one in header.tensors] == [tuple(int(size) for size in one.shape) for one in theirs.tensors]
    first = theirs.tensors[0].data_offset
    assert [one.offset for one in header.tensors] == [one.data_offset - first for one in theirs.tensors]
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.block_count"] == 3
    assert "tokenizer.ggml.tokens" not in header.metadata


def test_reads_every_scalar_type(tmp_path: Path) -> None:
    values = {
        0: ("<B", 200),
        1: ("<b", -5),
        2: ("<H", 60000),
        3: ("<h", -300),
        4: ("<I", 2**32 - 1),
        5: ("<i", -(2**31)),
        6: ("<f", 0.5),
        7: ("<?", True),
        10: ("<Q", 2**64 - 1),
        11: ("<q", -(2**63)),
        12: ("<d", 0.25),
    }
    pairs = [pair(f"k{kind}".encode(), kind, struct.pack(layout, value)) for kind, (layout, value) in values.items()]
    path = tmp_path / "scalars.gguf"
    path.write_bytes(whole(pairs, []))
    assert read_header(path).metadata == {f"k{kind}": value for kind, (_, value) in values.items()}


def test_tokenizer_digest_is_over_the_stored_pairs(tmp_path: Path) -> None:
    array = struct.pack("<IQ", _STRING, 2) + text(b"a") + text(b"\xff")  # tokens need not be UTF-8
    pairs = [pair(b"tokenizer.ggml.model", _STRING, text(b"gpt2")), pair(b"tokenizer.ggml.tokens", _ARRAY, array)]
    path = tmp_path / "tokens.gguf"
    path.write_bytes(whole([pair(b"a", _UINT32, bytes(4)), *pairs, pair(b"z", _UINT32, bytes(4))], []))
    assert read_header(path).tokenizer_sha256 == hashlib.sha256(b"".join(pairs)).hexdigest()
    path.write_bytes(whole([pair(b"a", _UINT32, bytes(4))], []))
    assert read_header(path).tokenizer_sha256 is None


HUGE = struct.pack("<Q", 2**64 - 1)

BAD = {
    "an empty file": (b"", "ends after 0 bytes"),
    "another format": (b"PK\x03\x04" + bytes(100), "does not begin with 'GGUF'"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    "a big-endian file": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian file"),
    "a tensor count beyond the file": (b"GGUF" + struct.pack("<I", 3) + HUGE + bytes(8), "claims 18446744073709551615 tensors"),
    "a pair count beyond the file": (whole([], [], pair_count=2**63), "claims 9223372036854775808 key-value pairs"),
    "more pairs than any model has": (
        whole([pair(b"k", 7, b"\0")] * 2, [], 2**20, pair_count=65537),
        "claims 65537 key-value pairs",
    ),
    "a key longer than the file": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + HUGE + bytes(64), "key 0 is 18446744073709551615"),
    "a key that is not UTF-8": (whole([pair(b"\xff\xfe", _UINT32, bytes(4))], []), "key 0 is not UTF-8"),
    "a key twice": (whole([pair(b"k", _UINT32, bytes(4))] * 2, []), "'k' occurs twice"),
    "a value of an unknown type": (whole([pair(b"k", 77, bytes(8))], []), "unknown type 77"),
    "a string past the end": (whole([pair(b"k", _STRING, HUGE)], []), "the value of 'k' is 18446744073709551615 bytes long"),
    "an array of arrays": (whole([pair(b"k", _ARRAY, struct.pack("<IQ", _ARRAY, 1))], []), "array of the type 9"),
    "an endless array of numbers": (whole([pair(b"k", _ARRAY, struct.pack("<I", 10) + HUGE)], []), "inside the value of 'k'"),
    "an endless array of strings": (whole([pair(b"k", _ARRAY, struct.pack("<I", _STRING) + HUGE)], []), "strings in the value"),
    "a tensor without dimensions": (whole([], [tensor(b"t", ())]), "0 dimensions"),
    "a tensor of five dimensions": (whole([], [tensor(b"t", (1,) * 5)]), "5 dimensions"),
    "2^32 - 1 dimensions": (whole([], [text(b"t") + b"\xff" * 4]), "4294967295 dimensions"),
    "a tensor of an unknown type": (whole([], [tensor(b"t", kind=4)]), "unknown type 4"),
    "half a block": (whole([], [tensor(b"t", (16,), kind=3)]), "Q4_1 cannot have the shape [16]"),
    "an empty tensor": (whole([], [tensor(b"t", (8, 0))]), "cannot have the shape [8, 0]"),
    "a tensor past the end": (whole([], [tensor(b"t", (2**40,))], data=64), "ends before the data of tensor 't'"),
    "a tensor of 2^256 elements": (whole([], [tensor(b"t", (2**64 - 1,) * 4)]), "ends before the data of tensor 't'"),
    "an offset past the end": (whole([], [tensor(b"t", offset=2**63)]), "ends before the data of tensor 't'"),
    "an offset between alignments": (whole([], [tensor(b"t", offset=4)]), "not aligned"),
    "tensors on top of each other": (whole([], [tensor(b"a", (16,)), tensor(b"b", (16,), offset=32)]), "overlaps"),
    "a tensor twice": (whole([], [tensor(b"a"), tensor(b"a", offset=32)]), "the same name"),
    "a name that is too long": (whole([], [tensor(b"n" * 64)]), "at most 63"),
    "an alignment of zero": (whole([pair(b"general.alignment", _UINT32, bytes(4))], []), "not a power of two"),
    "an alignment of 24": (whole([pair(b"general.alignment", _UINT32, struct.pack("<I", 24))], []), "not a power of two"),
    "an alignment in words": (whole([pair(b"general.alignment", _STRING, text(b"32"))], []), "not a power of two"),
}


@pytest.mark.parametrize("kind", BAD)
def test_refuses(kind: str, tmp_path: Path) -> None:
    content, expected = BAD[kind]
    assert expected in refused(tmp_path, content)


def test_refuses_every_truncation(tmp_path: Path) -> None:
    content = write_gguf(tmp_path / "tiny.gguf", layers=1).read_bytes()
    header_end = content.index(b"output_norm.weight")
    for length in [*range(0, header_end, 7), len(content) - 1]:
        assert refused(tmp_path, content[:length])


def test_refuses_a_header_beyond_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    length = MAX_HEADER_BYTES
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"k") + struct.pack("<IIQ", _ARRAY, 0, length)
    with path.open("wb") as file:  # sparse: nothing of the size is on disk
        file.write(head)
        file.truncate(len(head) + length)
    with pytest.raises(InputError, match="header is longer than"):
        read_header(path)


def test_refuses_what_is_not_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            read_header(path)
    with pytest.raises(InputError, match="no such GGUF file"):
        read_header(tmp_path / "nothing.gguf")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("good") / "good.gguf", layers=2).read_bytes()


EXTREMES = st.sampled_from([b"\x00" * 8, b"\xff" * 8, b"\xff" * 4, b"\x00\x00\x00\x80", b"\x09\x00\x00\x00", b"\x01"])
MUTATION = st.tuples(st.floats(0, 1, exclude_max=True), EXTREMES | st.binary(min_size=1, max_size=8), st.sampled_from("orid"))


def mutate(content: bytes, mutations: list[tuple[float, bytes, str]]) -> bytes:
    for where, value, how in mutations:
        at = int(where * len(content))
        if how == "o":  # overwrite
            content = content[:at] + value + content[at + len(value) :]
        elif how == "i":  # insert
            content = content[:at] + value + content[at:]
        elif how == "d":  # delete
            content = content[:at] + content[at + len(value) :]
        else:  # repeat a stretch
            content = content[:at] + content[max(0, at - 64) : at] + content[at:]
    return content


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=4))
@example(mutations=[(0.0, b"\x00", "o")])
def test_mutations_are_read_or_refused(good: bytes, tmp_path: Path, mutations: list[tuple[float, bytes, str]]) -> None:
    path = tmp_path / "mutated.gguf"
    path.write_bytes(mutate(good, mutations))
    try:
        header = read_header(path)
        take_inventory([header])
    except InputError:
        return
    assert isinstance(header, GgufHeader)
    assert sum(one.bytes for one in header.tensors) <= path.stat().st_size
