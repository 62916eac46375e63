"""DeepSeek V4 in small: the structure of the real model with random weights.

Kept from the real one: four residual streams (hyper-connections), three hash-routed layers that need token ids, layers of every
compression ratio (0: window alone; 4: CSA with its indexer; 128: HCA), an indexer that selects fewer blocks than a prompt has, a
window shorter than a prompt, one shared and several routed experts, and one multi-token-prediction block at the end. Tensor names
and shapes are those that src/models/deepseek4.cpp of the pinned upstream loads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dgrctl.artifacts.inventory import GENERATOR_KEY
from dgrctl.artifacts.synth.quantise import encode
from dgrctl.artifacts.synth.stream import Stream
from dgrctl.artifacts.synth.writer import Pair, PlannedTensor
from dgrctl.errors import InputError

ARCHITECTURE = "deepseek4"
# Part of every tensor's key: whatever changes a byte of a fixture changes this.
GENERATOR = "deepseek4/1"
WEIGHTS = ("f32", "f16", "mixed")
Weights = Literal["f32", "f16", "mixed"]

MIN_LAYERS = 4  # three hash-routed ones and one that is not; every ratio among them
MAX_LAYERS = 511  # LLAMA_MAX_LAYERS, less the prediction block
CONTEXT = 8192
VOCABULARY = 256
STREAMS = 4
HASH_LAYERS = 3
WINDOW = 32
SELECTED_BLOCKS = 8  # of the indexer

_HEADS, _HEAD_WIDTH, _ROPE_WIDTH = 4, 64, 32
_QUERY_RANK, _OUTPUT_GROUPS, _OUTPUT_RANK = 64, 4, 32
_EXPERTS, _ACTIVE_EXPERTS, _EXPERT_WIDTH = 8, 2, 64
_INDEXER_HEADS, _INDEXER_WIDTH = 4, 128
_MIXES = (2 + STREAMS) * STREAMS
_CSA = 4

# What a matrix is stored as, by the part that it has in the model. Vectors, hyper-connections and routers are always F32.
_TYPES = {
    "f32": dict.fromkeys(("embedding", "output", "attention", "compressor", "expert", "expert-down", "shared"), "F32"),
    "f16": dict.fromkeys(("embedding", "output", "attention", "compressor", "expert", "expert-down", "shared"), "F16"),
    "mixed": {
        "embedding": "Q8_0",
        "output": "Q4_K",
        "attention": "Q8_0",
        "compressor": "F16",
        "expert": "Q4_K",
        "expert-down": "Q4_0",
        "shared": "Q5_0",
    },
}
_FILE_TYPES = {"f32": 0, "f16": 1, "mixed": 15}  # LLAMA_FTYPE_ALL_F32, _MOSTLY_F16, _MOSTLY_Q4_K_M
_MIXED_BLOCK = 256  # of Q4_K: rows of the embedding width must be whole blocks


@dataclass(frozen=True)
class DeepSeek4:
    """What distinguishes one fixture from another; equal values give equal bytes.

    ``embedding`` is the width of one residual stream. ``vision_bias`` adds the routing bias that upstream takes for the tokens of
    images alone, with values that change the routing if they are ever taken for text.
    """

    layers: int
    seed: int
    weights: Weights
    embedding: int
    vision_bias: bool = False

    def __post_init__(self) -> None:
        block = _MIXED_BLOCK if self.weights == "mixed" else 32
        checks = (
            ("--layers", self.layers, MIN_LAYERS <= self.layers <= MAX_LAYERS, f"{MIN_LAYERS} to {MAX_LAYERS}"),
            ("--seed", self.seed, 0 <= self.seed < 2**53, "0 to 2^53 - 1"),
            ("--embedding", self.embedding, 0 < self.embedding <= 8192 and self.embedding % block == 0,
             f"a multiple of {block} up to 8192 (rows of --type {self.weights} must be whole blocks)"),
        )  # fmt: skip
        for option, value, good, range_text in checks:
            if not good:
                raise InputError(f"no fixture can be made with {option} {value}", where=option, remedy=f"name {range_text}")

    @property
    def name(self) -> str:
        """Unique per set of values: ``deepseek4-fixture-8l-f16-s1``."""
        width = "" if self.embedding == default_embedding(self.weights) else f"-e{self.embedding}"
        return f"deepseek4-fixture-{self.layers}l-{self.weights}{width}{'-vl' if self.vision_bias else ''}-s{self.seed}"

    @property
    def ratios(self) -> tuple[int, ...]:
        """Compression ratio of each main layer, by the real model's pattern: two without, then 4 and 128 by turns."""
        return (0, 0, *(128 if index % 2 else 4 for index in range(2, self.layers)))

    @property
    def arguments(self) -> dict[str, int | bool | str]:
        """What it was made with, as its manifest records it."""
        return asdict(self)

    def pairs(self) -> list[Pair]:
        """The metadata."""
        own: list[tuple[str, str, int | float | bool | list[int]]] = [
            ("vocab_size", "UINT32", VOCABULARY),
            ("context_length", "UINT32", CONTEXT),
            ("embedding_length", "UINT32", self.embedding),
            ("block_count", "UINT32", self.layers + 1),
            ("nextn_predict_layers", "UINT32", 1),
            ("attention.head_count", "UINT32", _HEADS),
            ("attention.head_count_kv", "UINT32", 1),
            ("attention.key_length", "UINT32", _HEAD_WIDTH),
            ("attention.value_length", "UINT32", _HEAD_WIDTH),
            ("rope.dimension_count", "UINT32", _ROPE_WIDTH),
            ("rope.freq_base", "FLOAT32", 10000.0),
            ("attention.layer_norm_rms_epsilon", "FLOAT32", 1e-6),
            ("attention.q_lora_rank", "UINT32", _QUERY_RANK),
            ("attention.sliding_window", "UINT32", WINDOW),
            ("feed_forward_length", "UINT32", _EXPERT_WIDTH),
            ("expert_feed_forward_length", "UINT32", _EXPERT_WIDTH),
            ("expert_count", "UINT32", _EXPERTS),
            ("expert_used_count", "UINT32", _ACTIVE_EXPERTS),
            ("expert_shared_count", "UINT32", 1),
            ("expert_gating_func", "UINT32", 4),  # square root of softplus
            ("expert_weights_scale", "FLOAT32", 1.5),
            ("expert_weights_norm", "BOOL", True),
            ("swiglu_clamp_exp", "FLOAT32", 10.0),
            ("attention.indexer.head_count", "UINT32", _INDEXER_HEADS),
            ("attention.indexer.key_length", "UINT32", _INDEXER_WIDTH),
            ("attention.indexer.top_k", "UINT32", SELECTED_BLOCKS),
            ("attention.output_group_count", "UINT32", _OUTPUT_GROUPS),
            ("attention.output_lora_rank", "UINT32", _OUTPUT_RANK),
            ("attention.compress_rope_freq_base", "FLOAT32", 160000.0),
            ("attention.compress_ratios", "INT32", [*self.ratios, 0]),
            ("hyper_connection.count", "UINT32", STREAMS),
            ("hyper_connection.sinkhorn_iterations", "UINT32", 4),
            ("hyper_connection.epsilon", "FLOAT32", 1e-6),
            ("hash_layer_count", "UINT32", HASH_LAYERS),
        ]
        return [
            Pair("general.architecture", "STRING", ARCHITECTURE),
            Pair("general.name", "STRING", self.name),
            Pair(GENERATOR_KEY, "STRING", GENERATOR),
            Pair("general.file_type", "UINT32", _FILE_TYPES[self.weights]),
            *(Pair(f"{ARCHITECTURE}.{key}", kind, value) for key, kind, value in own),
            # Prompts of fixtures are token ids: no text, so no tokenizer.
            Pair("tokenizer.ggml.model", "STRING", "no_vocab"),
        ]

    def tensors(self) -> list[PlannedTensor]:
        """Every tensor, in file order."""
        return list(_Tensors(self).all())


def default_embedding(weights: Weights) -> int:
    """The smallest width of a stream for which every tensor has whole blocks and upstream's kernels their fast paths."""
    return _MIXED_BLOCK if weights == "mixed" else 128


class _Tensors:
    def __init__(self, model: DeepSeek4) -> None:
        self._model = model
        self._stream = Stream(GENERATOR, model.seed)
        self._types = _TYPES[model.weights]

    def all(self) -> Iterator[PlannedTensor]:
        width = self._model.embedding
        yield self._matrix("token_embd.weight", (width, VOCABULARY), "embedding", deviation=1.0)
        yield self._vector("output_norm.weight", width)
        yield self._matrix("output.weight", (width, VOCABULARY), "output")
        yield from self._hyper_connection("output_hc", STREAMS, 1)
        for layer in range(self._model.layers):
            yield from self._layer(layer, self._model.ratios[layer])
        yield from self._layer(self._model.layers, 0)
        yield from self._prediction(f"blk.{self._model.layers}.nextn.")

    def _layer(self, layer: int, ratio: int) -> Iterator[PlannedTensor]:
        block = f"blk.{layer}."
        yield from self._attention(block)
        for part in ("attn", "ffn"):
            yield from self._hyper_connection(f"{block}hc_{part}", _MIXES, 3)
        if ratio:
            yield from self._compressor(f"{block}attn_compressor", _HEAD_WIDTH, ratio)
        if ratio == _CSA:
            yield from self._compressor(f"{block}indexer_compressor", _INDEXER_WIDTH, ratio)
            yield self._matrix(f"{block}indexer.proj.weight", (self._model.embedding, _INDEXER_HEADS), "compressor")
            yield self._matrix(f"{block}indexer.attn_q_b.weight", (_QUERY_RANK, _INDEXER_HEADS * _INDEXER_WIDTH), "compressor")
        yield from self._experts(block, hashed=layer < HASH_LAYERS)

    def _attention(self, block: str) -> Iterator[PlannedTensor]:
        width, rank, heads = self._model.embedding, _QUERY_RANK, _HEADS * _HEAD_WIDTH
        yield self._vector(f"{block}attn_norm.weight", width)
        yield self._vector(f"{block}attn_sinks.weight", _HEADS, deviation=0.5, mean=0.0)
        yield self._matrix(f"{block}attn_q_a.weight", (width, rank), "attention")
        yield self._vector(f"{block}attn_q_a_norm.weight", rank)
        yield self._matrix(f"{block}attn_q_b.weight", (rank, heads), "attention")
        yield self._matrix(f"{block}attn_kv.weight", (width, _HEAD_WIDTH), "attention")
        yield self._vector(f"{block}attn_kv_a_norm.weight", _HEAD_WIDTH)
        grouped = (heads // _OUTPUT_GROUPS, _OUTPUT_RANK * _OUTPUT_GROUPS)
        yield self._matrix(f"{block}attn_output_a.weight", grouped, "attention")
        yield self._matrix(f"{block}attn_output_b.weight", (_OUTPUT_GROUPS * _OUTPUT_RANK, width), "attention")

    def _hyper_connection(self, prefix: str, mixes: int, scales: int) -> Iterator[PlannedTensor]:
        yield self._floats(f"{prefix}_fn.weight", (STREAMS * self._model.embedding, mixes))
        yield self._vector(f"{prefix}_base.weight", mixes, deviation=0.3, mean=0.0)
        yield self._vector(f"{prefix}_scale.weight", scales)

    def _compressor(self, prefix: str, width: int, ratio: int) -> Iterator[PlannedTensor]:
        # Blocks of ratio 4 overlap: each is made of two halves.
        states = 2 * width if ratio == _CSA else width
        yield self._matrix(f"{prefix}_kv.weight", (self._model.embedding, states), "compressor")
        yield self._matrix(f"{prefix}_gate.weight", (self._model.embedding, states), "compressor")
        yield self._floats(f"{prefix}_ape.weight", (states, ratio), deviation=0.3)
        yield self._vector(f"{prefix}_norm.weight", width)

    def _experts(self, block: str, *, hashed: bool) -> Iterator[PlannedTensor]:
        width = self._model.embedding
        yield self._floats(f"{block}ffn_gate_inp.weight", (width, _EXPERTS))
        if hashed:
            name = f"{block}ffn_gate_tid2eid.weight"
            yield PlannedTensor(name, "I32", (_ACTIVE_EXPERTS, VOCABULARY), lambda: encode(self._table(name), "I32"))
        else:
            yield self._vector(f"{block}exp_probs_b.bias", _EXPERTS, deviation=0.1, mean=0.0)
        if self._model.vision_bias:
            yield self._vector(f"{block}exp_probs_b_vl.bias", _EXPERTS, deviation=2.0, mean=0.0)
        yield self._vector(f"{block}ffn_norm.weight", width)
        for part, rows, columns in (("gate", width, _EXPERT_WIDTH), ("up", width, _EXPERT_WIDTH), ("down", _EXPERT_WIDTH, width)):
            use = "expert-down" if part == "down" else "expert"
            yield self._matrix(f"{block}ffn_{part}_exps.weight", (rows, columns, _EXPERTS), use)
            yield self._matrix(f"{block}ffn_{part}_shexp.weight", (rows, columns), "shared")

    def _prediction(self, prefix: str) -> Iterator[PlannedTensor]:
        width = self._model.embedding
        yield self._matrix(f"{prefix}eh_proj.weight", (2 * width, width), "attention")
        for name in ("enorm", "hnorm", "shared_head_norm"):
            yield self._vector(f"{prefix}{name}.weight", width)

    def _table(self, name: str) -> NDArray[np.int32]:
        return self._stream.choices(name, VOCABULARY, _ACTIVE_EXPERTS, _EXPERTS)

    def _vector(self, name: str, width: int, *, deviation: float = 0.1, mean: float = 1.0) -> PlannedTensor:
        return self._planned(name, (width,), "F32", deviation, mean)

    def _floats(self, name: str, shape: tuple[int, ...], *, deviation: float | None = None) -> PlannedTensor:
        return self._planned(name, shape, "F32", deviation)

    def _matrix(self, name: str, shape: tuple[int, ...], use: str, *, deviation: float | None = None) -> PlannedTensor:
        return self._planned(name, shape, self._types[use], deviation)

    def _planned(
        self, name: str, shape: tuple[int, ...], type_name: str, deviation: float | None, mean: float = 0.0
    ) -> PlannedTensor:
        """Unless told otherwise the values keep the magnitude of what they are multiplied with: deviation 1 / sqrt(row)."""
        spread = 1.0 / math.sqrt(shape[0]) if deviation is None else deviation
        rows_last = tuple(reversed(shape))
        return PlannedTensor(name, type_name, shape, lambda: encode(self._stream.bell(name, rows_last, spread, mean), type_name))
