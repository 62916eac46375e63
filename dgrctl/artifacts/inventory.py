"""What a GGUF set holds, in the terms of a route: bytes per layer, of the head's extras and of the tail's.

Upstream sorts tensors into input, repeating and output ones (LLM_TENSOR_INFOS in src/llama-arch.cpp). A stage owns the repeating
tensors of its layers, the head the input ones, the tail the output ones and, where the output head is tied to the token
embedding (no ``output.weight``), the embedding once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dgrctl.artifacts.gguf_header import GgufHeader, Scalar, Tensor
from dgrctl.artifacts.gguf_types import FILE_TYPES
from dgrctl.errors import InputError

_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
_LAYER = re.compile(r"^blk\.(0|[1-9]\d{0,5})\.")
_EMBEDDING = "token_embd.weight"
_OUTPUT = "output.weight"
# What our own generators write into the files that they make, so that no manifest can pass one for a real model.
GENERATOR_KEY = "dgr.synth.generator"
# Input tensors, and the norm that runs on the first layer but belongs to no layer by name.
_HEAD = {"token_embd", "token_embd_norm", "position_embd", "token_types", "per_layer_token_embd"}
# Without a layer in their name, but used by every layer: each stage holds them.
_EVERYWHERE = {"rope_freqs", "rope_factors_long", "rope_factors_short"}


@dataclass(frozen=True)
class Inventory:
    """Sizes are bytes of tensor data, without padding.

    ``layer_bytes`` has one entry per main layer. ``prediction_bytes`` are those of layers for multi-token prediction: no stage
    loads them while it is off, so they count for none. ``tied_bytes`` is what ``head_bytes`` and ``tail_bytes`` both count, held
    once if one stage is both. ``shared_bytes`` is held by every stage.
    """

    architecture: str
    quantisation: str
    context_length: int  # positions the model was made for
    layer_bytes: tuple[int, ...]
    head_bytes: int
    tail_bytes: int
    tied_bytes: int
    shared_bytes: int
    prediction_bytes: int
    tokenizer_sha256: str | None
    generator: str | None  # of a fixture model; None for others


class Sized(Protocol):
    """What a stage's size follows from; the fields are those of :class:`Inventory`."""

    @property
    def layer_bytes(self) -> tuple[int, ...]: ...
    @property
    def head_bytes(self) -> int: ...
    @property
    def tail_bytes(self) -> int: ...
    @property
    def tied_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...


def stage_bytes(model: Sized, begin: int, end: int) -> int:
    """Bytes of the tensors that a stage owning the layers [begin, end) holds."""
    is_head, is_tail = begin == 0, end == len(model.layer_bytes)
    total = model.shared_bytes + sum(model.layer_bytes[begin:end])
    total += model.head_bytes if is_head else 0
    total += model.tail_bytes if is_tail else 0
    return total - model.tied_bytes if is_head and is_tail else total


def take_inventory(headers: Sequence[GgufHeader]) -> Inventory:
    """Adds up the tensors of a set, given its parts' headers in order.

    Raises:
        InputError: the parts do not make one set, or lack what a model must have.
    """
    first = headers[0]
    tensors = _all_tensors(headers)
    architecture = _text(first, "general.architecture")
    blocks = _number(first, f"{architecture}.block_count", 1, _MAX_LAYERS)
    predicting = _number(first, f"{architecture}.nextn_predict_layers", 0, blocks - 1, default=0)
    layers = [0] * (blocks - predicting)
    head = tail = shared = prediction = 0
    for tensor in tensors.values():
        layer = _LAYER.match(tensor.name)
        base = tensor.name.partition(".")[0]
        if layer and int(layer.group(1)) >= blocks:
            raise _refusal(first, f"tensor {tensor.name!r} belongs to no layer: there are {blocks}")
        if layer and int(layer.group(1)) < len(layers):
            layers[int(layer.group(1))] += tensor.bytes
        elif layer:
            prediction += tensor.bytes
        elif base in _HEAD:
            head += tensor.bytes
        elif base in _EVERYWHERE:
            shared += tensor.bytes
        else:
            tail += tensor.bytes
    if 0 in layers:
        raise _refusal(first, f"layer {layers.index(0)} of {len(layers)} has no tensors")
    if _EMBEDDING not in tensors:
        raise _refusal(first, f"it has no tensor {_EMBEDDING!r}")
    tied = 0 if _OUTPUT in tensors else tensors[_EMBEDDING].bytes
    file_type = _number(first, "general.file_type", 0, 2**31, default=0)
    return Inventory(
        architecture=architecture,
        quantisation=FILE_TYPES.get(file_type, f"UNKNOWN_{file_type}"),
        context_length=_number(first, f"{architecture}.context_length", 1, 2**31),
        layer_bytes=tuple(layers),
        head_bytes=head,
        tail_bytes=tail + tied,
        tied_bytes=tied,
        shared_bytes=shared,
        prediction_bytes=prediction,
        tokenizer_sha256=first.tokenizer_sha256,
        generator=str(first.metadata[GENERATOR_KEY]) if GENERATOR_KEY in first.metadata else None,
    )


def _all_tensors(headers: Sequence[GgufHeader]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for index, header in enumerate(headers):
        count = _number(header, "split.count", 0, 99999, default=1)
        if max(count, 1) != len(headers):
            raise _refusal(header, f"it is a part of a set of {count}, and the manifest names {len(headers)}")
        if len(headers) > 1 and _number(header, "split.no", 0, 99998) != index:
            raise _refusal(header, f"it is part {header.metadata['split.no']} of its set and stands in place {index}")
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise _refusal(header, f"tensor {tensor.name!r} stands in another part as well")
            tensors[tensor.name] = tensor
    if len(headers) > 1:
        promised = _number(headers[0], "split.tensors.count", 1, 2**31)
        if promised != len(tensors):
            raise _refusal(headers[0], f"the set has {len(tensors)} tensors and promises {promised}")
    return tensors


def _number(header: GgufHeader, key: str, low: int, high: int, *, default: int | None = None) -> int:
    value: Scalar | None = header.metadata.get(key, default)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    found = "is missing" if value is None else f"is {value!r}"
    raise _refusal(header, f"{key} {found:.80}; it must be an integer from {low} to {high}")


def _text(header: GgufHeader, key: str) -> str:
    value = header.metadata.get(key)
    if isinstance(value, str) and re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,99}", value):
        return value
    found = "is missing" if value is None else f"is {value!r}"
    raise _refusal(header, f"{key} {found:.80}; it must be the name of an architecture")


def _refusal(header: GgufHeader, what: str) -> InputError:
    return InputError(
        f"this GGUF file cannot be used: {what}",
        where=str(header.path),
        remedy="check that the manifest names the parts of one model in order, and that this is the publisher's file",
    )
