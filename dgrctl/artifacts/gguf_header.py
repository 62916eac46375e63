"""Reading a GGUF header as what it is: bytes from elsewhere.

Layout (ggml/include/gguf.h, little-endian): magic "GGUF", version u32, tensor count u64, pair count u64; the key-value pairs;
one record per tensor (name, dimensions, type, offset); padding to the alignment; the tensors' data. Nothing is believed before
it is checked against the file's size, no count of the file's makes anything grow beyond MAX_HEADER_BYTES, and arrays are
stepped over without being kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts.gguf_types import ARRAY, SCALARS, STRING, TENSOR_TYPES
from dgrctl.errors import InputError
from dgrctl.files import storage_errors

# Headers of today's largest vocabularies take some 16 MiB.
MAX_HEADER_BYTES = 64 * 1024 * 1024
# Far above any real file's; they bound the time that a hostile one can take.
_MAX_RECORDS = 65536  # pairs, tensors
_MAX_STRINGS = 4 * 1024 * 1024  # in one array: a vocabulary, its merges
_CHUNK = 1024 * 1024
_MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
_MAX_TENSOR_NAME = 63  # GGML_MAX_NAME less its terminating zero
_MAX_KEY = 65535
_DEFAULT_ALIGNMENT = 32
_VERSIONS = (2, 3)

Scalar = int | float | bool | str


@dataclass(frozen=True)
class Tensor:
    """One tensor's record. ``offset`` is in bytes from the start of the data section."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What one GGUF file says about itself.

    ``metadata`` holds scalars and strings; arrays are left out. ``tokenizer_sha256`` is the SHA-256 over the bytes of every
    pair (key length to end of value, as stored) whose key begins with ``tokenizer.``, in file order; None without such pairs.
    """

    path: Path
    version: int
    metadata: dict[str, Scalar]
    tensors: tuple[Tensor, ...]
    tokenizer_sha256: str | None


def read_header(path: Path) -> GgufHeader:
    """Reads and checks the header of the GGUF file ``path``.

    Raises:
        InputError: not a GGUF file, truncated, or contradicting itself or its size.
        StorageError: the file cannot be read.
    """
    with storage_errors(path), _missing(path):
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _refusal(path, "it is not a regular file")
            return _parse(_Cursor(path, descriptor, status.st_size))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _missing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputError("no such GGUF file", where=str(path), remedy="pull the model again") from error


def _refusal(path: Path, what: str) -> InputError:
    return InputError(
        f"this is not a GGUF file that can be used: {what}",
        where=str(path),
        remedy="compare its SHA-256 with its publisher's and fetch it again; if it is the publisher's own, do not use it",
    )


class _Cursor:
    """The header's bytes in order, read as they are needed and never more than MAX_HEADER_BYTES."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self.position = 0
        self._descriptor = descriptor
        self._buffer = bytearray()

    def refuse(self, what: str) -> InputError:
        return _refusal(self.path, what)

    def skip(self, count: int, what: str) -> int:
        """Steps over ``count`` bytes; returns where they begin."""
        begin = self.position
        end = begin + count
        if end > self.size:
            raise self.refuse(f"it ends after {self.size} bytes, inside {what}")
        if end > MAX_HEADER_BYTES:
            raise self.refuse(f"its header is longer than {MAX_HEADER_BYTES} bytes, in {what}")
        while len(self._buffer) < end:
            chunk = os.read(self._descriptor, max(_CHUNK, end - len(self._buffer)))
            if not chunk:
                raise self.refuse(f"it became shorter while it was read, inside {what}")
            self._buffer += chunk
        self.position = end
        return begin

    def number(self, layout: str, what: str) -> int:
        begin = self.skip(struct.calcsize(layout), what)
        return int(struct.unpack_from(layout, self._buffer, begin)[0])

    def scalar(self, kind: int, what: str) -> Scalar:
        _, layout, width = SCALARS[kind]
        begin = self.skip(width, what)
        value: Scalar = struct.unpack_from(layout, self._buffer, begin)[0]
        return value

    def text(self, what: str, limit: int = MAX_HEADER_BYTES) -> str:
        length = self.number("<Q", what)
        if length > limit:
            raise self.refuse(f"{what} is {length} bytes long; at most {limit} are possible")
        begin = self.skip(length, what)
        try:
            return self._buffer[begin : begin + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refuse(f"{what} is not UTF-8") from error

    def skip_texts(self, count: int, what: str) -> None:
        for _ in range(count):
            self.skip(self.number("<Q", what), what)

    def since(self, begin: int) -> memoryview:
        return memoryview(self._buffer)[begin : self.position]


def _parse(cursor: _Cursor) -> GgufHeader:
    begin = cursor.skip(4, "the magic number")
    if bytes(cursor.since(begin)) != b"GGUF":
        raise cursor.refuse("it does not begin with 'GGUF'")
    version = cursor.number("<I", "the version")
    if version not in _VERSIONS:
        hint = " (a big-endian file)" if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS else ""
        raise cursor.refuse(f"version {version}{hint}; versions {_VERSIONS[0]} and {_VERSIONS[1]} are read")
    tensor_count = cursor.number("<Q", "the tensor count")
    pair_count = cursor.number("<Q", "the count of key-value pairs")
    metadata, tokenizer = _pairs(cursor, pair_count)
    tensors = [_tensor(cursor) for _ in _counted(cursor, tensor_count, "tensors")]
    _check_data(cursor, tensors, _alignment(cursor, metadata))
    return GgufHeader(cursor.path, version, metadata, tuple(tensors), tokenizer)


def _counted(cursor: _Cursor, count: int, what: str, limit: int = _MAX_RECORDS) -> range:
    # Each takes eight bytes at least; a larger count is a lie.
    if count > min(limit, (cursor.size - cursor.position) // 8):
        raise cursor.refuse(f"it claims {count} {what} and is {cursor.size} bytes long")
    return range(count)


def _pairs(cursor: _Cursor, count: int) -> tuple[dict[str, Scalar], str | None]:
    metadata: dict[str, Scalar] = {}
    seen: set[str] = set()
    tokenizer = hashlib.sha256()
    has_tokenizer = False
    for index in _counted(cursor, count, "key-value pairs"):
        begin = cursor.position
        key = cursor.text(f"key {index}", _MAX_KEY)
        if key in seen:
            raise cursor.refuse(f"the key {key!r} occurs twice")
        seen.add(key)
        value = _value(cursor, f"the value of {key!r}")
        if value is not None:
            metadata[key] = value
        if key.startswith("tokenizer."):
            has_tokenizer = True
            tokenizer.update(cursor.since(begin))
    return metadata, tokenizer.hexdigest() if has_tokenizer else None


def _value(cursor: _Cursor, what: str) -> Scalar | None:
    kind = cursor.number("<I", what)
    if kind in SCALARS:
        return cursor.scalar(kind, what)
    if kind == STRING:
        return cursor.text(what)
    if kind != ARRAY:
        raise cursor.refuse(f"{what} has the unknown type {kind}")
    element = cursor.number("<I", what)
    length = cursor.number("<Q", what)
    if element == STRING:
        cursor.skip_texts(len(_counted(cursor, length, f"strings in {what}", _MAX_STRINGS)), what)
    elif element in SCALARS:
        cursor.skip(length * SCALARS[element][2], what)
    else:
        raise cursor.refuse(f"{what} is an array of the type {element}")
    return None


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.text("a tensor's name", _MAX_TENSOR_NAME)
    what = f"the record of tensor {name!r}"
    dimensions = cursor.number("<I", what)
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.refuse(f"tensor {name!r} has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are possible")
    shape = tuple(cursor.number("<Q", what) for _ in range(dimensions))
    kind = cursor.number("<I", what)
    offset = cursor.number("<Q", what)
    if kind not in TENSOR_TYPES:
        raise cursor.refuse(f"tensor {name!r} has the unknown type {kind}")
    type_name, block, block_bytes = TENSOR_TYPES[kind]
    if min(shape) < 1 or shape[0] % block:
        raise cursor.refuse(f"tensor {name!r} of type {type_name} cannot have the shape {list(shape)}")
    return Tensor(name, type_name, shape, offset, math.prod(shape) // block * block_bytes)


def _alignment(cursor: _Cursor, metadata: dict[str, Scalar]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _CHUNK and value & (value - 1) == 0:
        return value
    raise cursor.refuse(f"general.alignment is {value!r}, not a power of two")


def _check_data(cursor: _Cursor, tensors: list[Tensor], alignment: int) -> None:
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise cursor.refuse("two tensors have the same name")
    data_begin = _round_up(cursor.position, alignment)
    available = cursor.size - data_begin
    free_from = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.name)):
        if tensor.offset % alignment:
            raise cursor.refuse(f"the data of tensor {tensor.name!r} is not aligned to {alignment} bytes")
        if tensor.offset < free_from:
            raise cursor.refuse(f"the data of tensor {tensor.name!r} overlaps another tensor's")
        free_from = tensor.offset + tensor.bytes
        if free_from > available:
            raise cursor.refuse(f"it ends before the data of tensor {tensor.name!r} does: {free_from} bytes of {available}")


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
