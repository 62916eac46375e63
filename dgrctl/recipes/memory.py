"""How much memory a stage takes, predicted from the model's tensors and the recipe's execution settings.

Resident bytes of a stage = the weights it owns + the vocabulary + its state + what computing takes. The vocabulary's tables are
on the head alone; the others load without. State follows the caches of the pinned upstream, cell by cell
(src/llama-kv-cache*.cpp, for the worker's settings: one stream a session, no rollback, and in layers with a sliding window no
more positions than the window and one ubatch). Computing is an upper estimate from the widths of the graph, and the descriptions
of it; for DeepSeek V4, whose indexer scores every compressed block for every row, it was held against a published measurement:
2 GiB at 16k and 65.5 GiB at 1M positions with a ubatch of 512.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dgrctl.artifacts.deepseek4 import CSA_RATIO, HCA_RATIO
from dgrctl.artifacts.gguf_header import GgufHeader, Scalar, read_header
from dgrctl.artifacts.inventory import Inventory, stage_bytes, take_inventory
from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.target import TargetManifest
from dgrctl.errors import InputError
from dgrctl.recipes.recipe import Execution

MIB = 1024 * 1024
# What a stage may take beyond its prediction: the program's code and heap, threads, connections, frames under way.
ALLOWANCE = 16 * MIB

_PADDING = 256  # cells of a cache come in this many (llama_context, llama_kv_cache_iswa)
# Bookkeeping of a cell (llama_kv_cells): position, its parts, shift and a bit for each sequence; once it is used, a node in each
# of two ordered sets as well.
_CELL_BYTES = 4 + 12 + 4 + 32 + 2 * 48
_FLOAT = 4
# (values, bytes) of a row's unit, by cache type.
_CACHE_TYPES = {"f32": (1, 4), "f16": (1, 2), "q8_0": (32, 34)}
# A token of the vocabulary: its text twice, its entry in the table and in the map; with byte pairs, about one merge a token.
_TOKEN_BYTES, _MERGE_BYTES = 160, 104
_TOKENIZER, _NO_VOCABULARY = "tokenizer.ggml.model", "no_vocab"
_GEMMA_PERIOD = 6  # five layers with a window, then one without


@dataclass(frozen=True)
class Footprint:
    """Predicted resident bytes of one stage, by what they are for."""

    weights: int
    vocabulary: int
    state: int
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.vocabulary + self.state + self.compute


@dataclass(frozen=True)
class _Cache:
    """One cache of a layer, per session. ``ratio`` positions share a cell; ``window`` None: all positions are kept."""

    k_width: int
    v_width: int
    ratio: int = 1
    window: int | None = None

    def cells(self, execution: Execution) -> int:
        context = _padded(execution.context)
        if self.window is not None:
            return _padded(min(context, self.window + execution.ubatch))
        return _padded(-(-context // self.ratio))

    def bytes(self, execution: Execution) -> int:
        row = _row(self.k_width, execution.kv_type_k) + _row(self.v_width, execution.kv_type_v)
        return self.cells(execution) * row


@dataclass(frozen=True)
class _Layer:
    """State of one layer: its caches, and bytes per session that depend on nothing."""

    caches: tuple[_Cache, ...]
    fixed: int = 0


@dataclass(frozen=True)
class MemoryModel:
    """What the memory of a model's stages depends on.

    Attributes:
        tensors: Number of tensors by layer, -1 for those of none.
        row_values: Values of one boundary row.
        inner_values: Values that a layer holds at once for one row, beside copies of the row itself, at most.
        indexer_heads: Heads that score every compressed block for every row; 0 without an indexer.
    """

    model_id: str
    inventory: Inventory
    layers: tuple[_Layer, ...]
    tensors: Counter[int]
    row_values: int
    inner_values: int
    vocabulary: int
    vocabulary_bytes: int
    indexer_heads: int

    @classmethod
    def of(cls, model: LocalModel) -> MemoryModel:
        """The model as it lies here.

        Raises:
            InputError: no memory model is known for its architecture.
        """
        return _memory_model(model.manifest.id, [read_header(path) for path in model.parts])

    @classmethod
    def of_target(cls, target: TargetManifest) -> MemoryModel:
        """The model as it would be."""
        return _memory_model(target.id, [target.header])

    @property
    def layer_count(self) -> int:
        return len(self.layers)

    def footprint(self, begin: int, end: int, execution: Execution) -> Footprint:
        """Of the stage [begin, end), computing with its sessions full and without logits of more than one row."""
        return Footprint(
            weights=stage_bytes(self.inventory, begin, end),
            vocabulary=self.vocabulary_bytes if begin == 0 else 0,
            state=self._state(begin, end, execution),
            compute=self._compute(begin, end, execution),
        )

    def _state(self, begin: int, end: int, execution: Execution) -> int:
        owned = self.layers[begin:end]
        caches = sum(cache.bytes(execution) for layer in owned for cache in layer.caches)
        kinds = {(cache.ratio, cache.window) for layer in owned for cache in layer.caches}
        # Upstream keeps the books of a cache without layers as well: of window caches where there is none, and the reverse.
        cells = sum(_Cache(0, 0, ratio, window).cells(execution) for ratio, window in kinds) + _padded(execution.context)
        return execution.sessions * (caches + sum(layer.fixed for layer in owned) + cells * _CELL_BYTES)

    def _compute(self, begin: int, end: int, execution: Execution) -> int:
        row = _FLOAT * (_ROW_COPIES * self.row_values + self.inner_values)
        # Of each mask there is a half-precision copy, which flash attention reads.
        kinds = {(cache.ratio, cache.window) for layer in self.layers[begin:end] for cache in layer.caches}
        mask = sum(_Cache(0, 0, ratio, window).cells(execution) for ratio, window in kinds) * (_FLOAT + 2)
        blocks = _Cache(0, 0, CSA_RATIO).cells(execution) if self._indexes(begin, end) else 0
        scores = 2 * _FLOAT * self.indexer_heads * blocks
        logits = 2 * _FLOAT * self.vocabulary * execution.sessions if end == self.layer_count else 0
        return execution.ubatch * (row + mask + scores) + logits + self._graphs(begin, end, execution)

    def _graphs(self, begin: int, end: int, execution: Execution) -> int:
        """The descriptions of what is computed, for as many nodes as upstream provides for (llama_context::graph_max_nodes)."""
        tensors = self.tensors[-1] + sum(self.tensors[layer] for layer in range(begin, end))
        many = self.inventory.architecture == "deepseek4"
        nodes = max(40 * execution.ubatch, 32 * tensors) if many else max(1024, 8 * tensors)
        return _GRAPHS * nodes * _NODE_BYTES

    def _indexes(self, begin: int, end: int) -> bool:
        return any(cache.ratio == CSA_RATIO for layer in self.layers[begin:end] for cache in layer.caches)


# Copies of a row, in single precision, that are alive at once: into a block, out of it, and on its way between stages.
_ROW_COPIES = 16
# llama.cpp keeps the graph it reserved memory for, the last one with outputs and the last one without. Of a node there is the
# tensor (368 bytes with its object) and its place in the graph's lists and hash table (40 to 64).
_GRAPHS, _NODE_BYTES = 3, 432


def _memory_model(model_id: str, headers: Sequence[GgufHeader]) -> MemoryModel:
    inventory, metadata = take_inventory(headers), headers[0].metadata
    shapes = {tensor.name: tensor.shape for header in headers for tensor in header.tensors}
    architecture = inventory.architecture
    make = {"llama": _plain, "gemma3": _gemma3, "deepseek4": _deepseek4}.get(architecture)
    if make is None:
        raise InputError(
            f"no memory model is known for the architecture {architecture!r} of {model_id}",
            where="general.architecture",
            remedy="measure a stage, and describe its caches in dgrctl/recipes/memory.py",
        )
    number = _Numbers(model_id, metadata, architecture)
    streams = number.get("hyper_connection.count", 1)
    tokens = shapes["token_embd.weight"][1]
    return MemoryModel(
        model_id=model_id,
        inventory=inventory,
        layers=tuple(make(number, shapes, layer) for layer in range(len(inventory.layer_bytes))),
        tensors=Counter(int(name.split(".")[1]) if name.startswith("blk.") else -1 for name in shapes),
        row_values=streams * number.get("embedding_length"),
        inner_values=max(_inner(shapes, layer, number) for layer in range(len(inventory.layer_bytes))),
        vocabulary=tokens,
        vocabulary_bytes=_vocabulary_bytes(metadata, tokens),
        indexer_heads=number.get("attention.indexer.head_count", 0),
    )


@dataclass(frozen=True)
class _Numbers:
    model_id: str
    metadata: Mapping[str, Scalar]
    architecture: str

    def get(self, key: str, default: int | None = None) -> int:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise InputError(
            f"the model {self.model_id} says no number for {key}",
            where=f"{self.architecture}.{key}",
            remedy="pull the model again",
        )


Shapes = Mapping[str, tuple[int, ...]]


def _plain(number: _Numbers, shapes: Shapes, layer: int) -> _Layer:
    del number
    k, v = (shapes[f"blk.{layer}.attn_{part}.weight"][1] for part in ("k", "v"))
    return _Layer((_Cache(k, v),))


def _gemma3(number: _Numbers, shapes: Shapes, layer: int) -> _Layer:
    (cache,) = _plain(number, shapes, layer).caches
    window = number.get("attention.sliding_window", 0)
    period = number.get("attention.sliding_window_pattern", _GEMMA_PERIOD)
    if window and layer % period < period - 1:
        return _Layer((_Cache(cache.k_width, cache.v_width, window=window),))
    return _Layer((cache,))


def _deepseek4(number: _Numbers, shapes: Shapes, layer: int) -> _Layer:
    """Keys alone, which serve as values too; compressor states are single precision: keys and scores."""
    block = f"blk.{layer}."
    head = shapes[f"{block}attn_kv.weight"][1]
    raw = _Cache(head, 0, window=number.get("attention.sliding_window"))
    if f"{block}attn_compressor_kv.weight" not in shapes:
        return _Layer((raw,))
    if f"{block}indexer.proj.weight" not in shapes:
        return _Layer((raw, _Cache(head, 0, HCA_RATIO)), fixed=2 * _FLOAT * HCA_RATIO * head)
    indexer = shapes[f"{block}indexer_compressor_norm.weight"][0]
    # Blocks overlap by half: two blocks' rows of twice the width.
    states = 2 * CSA_RATIO * 2 * (head + indexer)
    return _Layer((raw, _Cache(head, 0, CSA_RATIO), _Cache(indexer, 0, CSA_RATIO)), fixed=2 * _FLOAT * states)


def _inner(shapes: Shapes, layer: int, number: _Numbers) -> int:
    """Queries and what attention gives, four times; the widest feed-forward, with each active expert's rows, four times."""
    block = f"blk.{layer}."
    queries = max((shapes[block + name][1] for name in ("attn_q.weight", "attn_q_b.weight") if block + name in shapes), default=0)
    dense = max(
        (shape[1] for name, shape in shapes.items() if re.fullmatch(rf"blk\.{layer}\.ffn_(up|up_shexp)\.weight", name)), default=0
    )
    experts = shapes.get(f"{block}ffn_up_exps.weight")
    active = number.get("expert_used_count", 0)
    routed = active * (experts[1] + experts[0]) if experts else 0
    return 4 * (queries + dense + routed)


def _vocabulary_bytes(metadata: Mapping[str, Scalar], tokens: int) -> int:
    kind = metadata.get(_TOKENIZER)
    if kind == _NO_VOCABULARY:
        return 0
    return tokens * (_TOKEN_BYTES + (_MERGE_BYTES if kind == "gpt2" else 0))


def _row(width: int, kind: str) -> int:
    values, size = _CACHE_TYPES[kind]
    return -(-width // values) * size


def _padded(cells: int) -> int:
    return -(-cells // _PADDING) * _PADDING
