"""The tables are the gguf package's, and so upstream's."""

from __future__ import annotations

import struct

import gguf

from dgrctl.artifacts.gguf_types import ARRAY, FILE_TYPES, SCALARS, STRING, TENSOR_TYPES

# Newer in the pinned upstream than in the package.
_ONLY_UPSTREAM_TENSORS = {42: ("Q2_0", 64, 18)}
_ONLY_UPSTREAM_FILES = {41: "Q2_0"}


def test_tensor_types() -> None:
    theirs = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    assert {**theirs, **_ONLY_UPSTREAM_TENSORS} == TENSOR_TYPES


def test_file_types() -> None:
    theirs = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in gguf.LlamaFileType}
    theirs.pop(gguf.LlamaFileType.GUESSED.value)
    assert {**theirs, **_ONLY_UPSTREAM_FILES} == FILE_TYPES


def test_value_types() -> None:
    theirs = {kind.value: kind.name for kind in gguf.GGUFValueType}
    assert {**{kind: name for kind, (name, _, _) in SCALARS.items()}, STRING: "STRING", ARRAY: "ARRAY"} == theirs
    assert all(struct.calcsize(layout) == width for _, layout, width in SCALARS.values())
