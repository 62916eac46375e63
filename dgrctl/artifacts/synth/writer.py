"""Writing GGUF files (ggml/include/gguf.h), one or a set split as llama-gguf-split does it.

Tensors are made and written one after the other, so a set takes the memory of its largest tensor.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts.gguf_types import ARRAY, SCALARS, STRING, TENSOR_TYPES
from dgrctl.artifacts.synth.quantise import NUMBERS
from dgrctl.files import storage_errors

_ALIGNMENT = 32
_VERSION = 3
_KINDS = {name: kind for kind, (name, _, _) in SCALARS.items()}

PairValue = str | bool | int | float | Sequence[int]


@dataclass(frozen=True)
class Pair:
    """One key-value pair. ``kind`` is a GGUF value type's name ("UINT32", "STRING" …); a sequence becomes an array of it."""

    key: str
    kind: str
    value: PairValue


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor to be written. ``shape`` is in ggml's order, rows first; ``make`` gives its bytes when their turn comes."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    make: Callable[[], bytes]

    @property
    def bytes(self) -> int:
        _, block, block_bytes = TENSOR_TYPES[NUMBERS[self.type_name]]
        return math.prod(self.shape) // block * block_bytes


def part_names(prefix: str, count: int) -> list[str]:
    """Names of a set's files, as upstream's loader looks for them."""
    return [f"{prefix}.gguf"] if count == 1 else [f"{prefix}-{index + 1:05d}-of-{count:05d}.gguf" for index in range(count)]


def write_set(folder: Path, prefix: str, count: int, pairs: Sequence[Pair], tensors: Sequence[PlannedTensor]) -> list[Path]:
    """Writes a set of ``count`` files into ``folder``, each durable when this returns.

    With more than one, the first holds the metadata and no tensor, the others an even share of the tensors each, in order
    (``llama-gguf-split --no-tensor-first-split``).

    Raises:
        StorageError: the disk is full, read-only or forbidden.
    """
    paths = [folder / name for name in part_names(prefix, count)]
    if count == 1:
        _write(paths[0], pairs, tensors)
        return paths
    for index, path in enumerate(paths):
        split = [
            Pair("split.no", "UINT16", index),
            Pair("split.count", "UINT16", count),
            Pair("split.tensors.count", "INT32", len(tensors)),
        ]
        _write(path, [*pairs, *split] if index == 0 else split, _share(tensors, index - 1, count - 1) if index else [])
    return paths


def _share(tensors: Sequence[PlannedTensor], index: int, shares: int) -> Sequence[PlannedTensor]:
    return tensors[len(tensors) * index // shares : len(tensors) * (index + 1) // shares]


def _write(path: Path, pairs: Sequence[Pair], tensors: Sequence[PlannedTensor]) -> None:
    with storage_errors(path), path.open("xb") as file:
        file.write(_padded(_header(pairs, tensors)))
        for tensor in tensors:
            data = tensor.make()
            if len(data) != tensor.bytes:
                raise ValueError(f"{tensor.name} was made with {len(data)} bytes instead of {tensor.bytes}")
            file.write(_padded(data))
        file.flush()
        os.fsync(file.fileno())


def _header(pairs: Sequence[Pair], tensors: Sequence[PlannedTensor]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", _VERSION, len(tensors), len(pairs))]
    for pair in pairs:
        parts += [_text(pair.key), _value(pair)]
    offset = 0
    for tensor in tensors:
        parts += [_text(tensor.name), struct.pack("<I", len(tensor.shape)), struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)]
        parts.append(struct.pack("<IQ", NUMBERS[tensor.type_name], offset))
        offset += tensor.bytes + -tensor.bytes % _ALIGNMENT
    return b"".join(parts)


def _value(pair: Pair) -> bytes:
    if isinstance(pair.value, str):
        return struct.pack("<I", STRING) + _text(pair.value)
    kind = _KINDS[pair.kind]
    layout = SCALARS[kind][1]
    if isinstance(pair.value, Sequence):
        elements = b"".join(struct.pack(layout, element) for element in pair.value)
        return struct.pack("<IIQ", ARRAY, kind, len(pair.value)) + elements
    return struct.pack("<I", kind) + struct.pack(layout, pair.value)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
