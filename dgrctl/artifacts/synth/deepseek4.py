"""DeepSeek V4 in small: the structure of the real model with random weights.

Kept from the real one: four residual streams (hyper-connections), three hash-routed layers that need token ids, layers of every
compression ratio (0: window alone; 4: CSA with its indexer; 128: HCA), an indexer that selects fewer blocks than a prompt has, a
window shorter than a prompt, one shared and several routed experts, and one multi-token-prediction block at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from dgrctl.artifacts.deepseek4 import ARCHITECTURE, CSA_RATIO, HCA_RATIO, Dimensions, TensorShape, Use, tensor_shapes
from dgrctl.artifacts.inventory import GENERATOR_KEY
from dgrctl.artifacts.synth.quantise import encode
from dgrctl.artifacts.synth.stream import Stream, Values
from dgrctl.artifacts.synth.writer import Pair, PlannedTensor
from dgrctl.errors import InputError

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

_ROPE_WIDTH = 32
_EXPERTS, _ACTIVE_EXPERTS = 8, 2
_MIXED_BLOCK = 256  # of Q4_K: rows of the embedding width must be whole blocks
_FILE_TYPES = {"f32": 0, "f16": 1, "mixed": 15}  # LLAMA_FTYPE_ALL_F32, _MOSTLY_F16, _MOSTLY_Q4_K_M

# What the matrices are stored as; everything else is F32, and the table of experts I32.
_MATRICES: tuple[Use, ...] = (
    "embedding", "output", "attention", "compressor", "indexer-query", "expert", "expert-down", "shared", "prediction",
)  # fmt: skip
_MIXED_TYPES: dict[Use, str] = {
    "embedding": "Q8_0",
    "output": "Q4_K",
    "attention": "Q8_0",
    "compressor": "F16",
    "indexer-query": "F16",
    "expert": "Q4_K",
    "expert-down": "Q4_0",
    "shared": "Q5_0",
    "prediction": "Q8_0",
}

# (standard deviation, mean) of a tensor's values. Those that are not named keep the magnitude of what they are multiplied with:
# deviation 1 / sqrt(row). The vision bias is large enough to change the routing wherever it is taken.
_VALUES: dict[Use, tuple[float, float]] = {
    "embedding": (1.0, 0.0),
    "norm": (0.1, 1.0),
    "sinks": (0.5, 0.0),
    "mix-base": (0.3, 0.0),
    "mix-scale": (0.1, 1.0),
    "offsets": (0.3, 0.0),
    "router-bias": (0.1, 0.0),
    "vision-bias": (2.0, 0.0),
}


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
        return (0, 0, *(HCA_RATIO if index % 2 else CSA_RATIO for index in range(2, self.layers)))

    @property
    def dimensions(self) -> Dimensions:
        """The sizes of its tensors."""
        return Dimensions(
            width=self.embedding,
            streams=STREAMS,
            vocabulary=VOCABULARY,
            ratios=self.ratios,
            prediction_layers=1,
            hash_layers=HASH_LAYERS,
            heads=4,
            head_width=64,
            query_rank=64,
            output_groups=4,
            output_rank=32,
            experts=_EXPERTS,
            active_experts=_ACTIVE_EXPERTS,
            expert_width=64,
            indexer_heads=4,
            indexer_width=128,
            vision_bias=self.vision_bias,
        )

    @property
    def arguments(self) -> dict[str, int | bool | str]:
        """What it was made with, as its manifest records it."""
        return asdict(self)

    def pairs(self) -> list[Pair]:
        """The metadata."""
        sizes = self.dimensions
        own: list[tuple[str, str, int | float | bool | list[int]]] = [
            ("vocab_size", "UINT32", VOCABULARY),
            ("context_length", "UINT32", CONTEXT),
            ("embedding_length", "UINT32", self.embedding),
            ("block_count", "UINT32", self.layers + 1),
            ("nextn_predict_layers", "UINT32", 1),
            ("attention.head_count", "UINT32", sizes.heads),
            ("attention.head_count_kv", "UINT32", 1),
            ("attention.key_length", "UINT32", sizes.head_width),
            ("attention.value_length", "UINT32", sizes.head_width),
            ("rope.dimension_count", "UINT32", _ROPE_WIDTH),
            ("rope.freq_base", "FLOAT32", 10000.0),
            ("attention.layer_norm_rms_epsilon", "FLOAT32", 1e-6),
            ("attention.q_lora_rank", "UINT32", sizes.query_rank),
            ("attention.sliding_window", "UINT32", WINDOW),
            ("feed_forward_length", "UINT32", sizes.expert_width),
            ("expert_feed_forward_length", "UINT32", sizes.expert_width),
            ("expert_count", "UINT32", _EXPERTS),
            ("expert_used_count", "UINT32", _ACTIVE_EXPERTS),
            ("expert_shared_count", "UINT32", 1),
            ("expert_gating_func", "UINT32", 4),  # square root of softplus
            ("expert_weights_scale", "FLOAT32", 1.5),
            ("expert_weights_norm", "BOOL", True),
            ("swiglu_clamp_exp", "FLOAT32", 10.0),
            ("attention.indexer.head_count", "UINT32", sizes.indexer_heads),
            ("attention.indexer.key_length", "UINT32", sizes.indexer_width),
            ("attention.indexer.top_k", "UINT32", SELECTED_BLOCKS),
            ("attention.output_group_count", "UINT32", sizes.output_groups),
            ("attention.output_lora_rank", "UINT32", sizes.output_rank),
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
        stream = Stream(GENERATOR, self.seed)
        return [self._planned(stream, tensor) for tensor in tensor_shapes(self.dimensions)]

    def _planned(self, stream: Stream, tensor: TensorShape) -> PlannedTensor:
        type_name, make = self._type(tensor.use), _values(stream, tensor)
        return PlannedTensor(tensor.name, type_name, tensor.shape, lambda: encode(make(), type_name))

    def _type(self, use: Use) -> str:
        if use == "expert-table":
            return "I32"
        if use not in _MATRICES:
            return "F32"
        return _MIXED_TYPES[use] if self.weights == "mixed" else self.weights.upper()


def default_embedding(weights: Weights) -> int:
    """The smallest width of a stream for which every tensor has whole blocks and upstream's kernels their fast paths."""
    return _MIXED_BLOCK if weights == "mixed" else 128


def _values(stream: Stream, tensor: TensorShape) -> Callable[[], Values]:
    """Makes a tensor's values, rows last, when they are asked for."""
    name, shape = tensor.name, tuple(reversed(tensor.shape))
    if tensor.use == "expert-table":
        return lambda: stream.choices(name, VOCABULARY, _ACTIVE_EXPERTS, _EXPERTS)
    deviation, mean = _VALUES.get(tensor.use, (1.0 / math.sqrt(tensor.shape[0]), 0.0))
    return lambda: stream.bell(name, shape, deviation, mean)
