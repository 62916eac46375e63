"""The tensors of a DeepSeek V4 model of given dimensions: names, shapes and what each is used for.

Source: llama_model_deepseek4::load_arch_tensors in src/models/deepseek4.cpp of the pinned upstream. Shapes are in ggml's order,
rows first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

ARCHITECTURE = "deepseek4"
CSA_RATIO = 4  # compressed sparse attention: one row for 4 tokens, selected by an indexer
HCA_RATIO = 128  # heavily compressed attention: one row for 128 tokens, all of them seen

Use = Literal[
    "embedding",
    "output",
    "attention",
    "compressor",
    "indexer-query",
    "expert",
    "expert-down",
    "shared",
    "router",
    "prediction",
    "norm",
    "sinks",
    "mix",
    "mix-base",
    "mix-scale",
    "offsets",
    "router-bias",
    "vision-bias",
    "expert-table",
]


class Dimensions(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Sizes of one model. ``ratios`` holds the compression ratio of each main layer: 0, 4 or 128."""

    width: int  # of one residual stream
    streams: int
    vocabulary: int
    ratios: tuple[int, ...]
    prediction_layers: int
    hash_layers: int
    heads: int
    head_width: int
    query_rank: int
    output_groups: int
    output_rank: int
    experts: int
    active_experts: int
    expert_width: int
    indexer_heads: int
    indexer_width: int
    vision_bias: bool = False

    @property
    def mixes(self) -> int:
        """Numbers that a hyper-connection makes of one token: into the block, out of it, and stream to stream."""
        return (2 + self.streams) * self.streams


@dataclass(frozen=True)
class TensorShape:
    """One tensor. The first dimension is the length of its rows."""

    name: str
    shape: tuple[int, ...]
    use: Use


def tensor_shapes(sizes: Dimensions) -> Iterator[TensorShape]:
    """Every tensor, in file order; layers for multi-token prediction come after the main ones."""
    yield TensorShape("token_embd.weight", (sizes.width, sizes.vocabulary), "embedding")
    yield TensorShape("output_norm.weight", (sizes.width,), "norm")
    yield TensorShape("output.weight", (sizes.width, sizes.vocabulary), "output")
    yield from _hyper_connection(sizes, "output_hc", sizes.streams, 1)
    for layer, ratio in enumerate(sizes.ratios):
        yield from _layer(sizes, layer, ratio)
    for layer in range(len(sizes.ratios), len(sizes.ratios) + sizes.prediction_layers):
        yield from _layer(sizes, layer, 0)
        yield from _prediction(sizes, f"blk.{layer}.nextn.")


def _layer(sizes: Dimensions, layer: int, ratio: int) -> Iterator[TensorShape]:
    block = f"blk.{layer}."
    yield from _attention(sizes, block)
    for part in ("attn", "ffn"):
        yield from _hyper_connection(sizes, f"{block}hc_{part}", sizes.mixes, 3)
    if ratio:
        yield from _compressor(sizes, f"{block}attn_compressor", sizes.head_width, ratio)
    if ratio == CSA_RATIO:
        queries = sizes.indexer_heads * sizes.indexer_width
        yield from _compressor(sizes, f"{block}indexer_compressor", sizes.indexer_width, ratio)
        yield TensorShape(f"{block}indexer.proj.weight", (sizes.width, sizes.indexer_heads), "compressor")
        yield TensorShape(f"{block}indexer.attn_q_b.weight", (sizes.query_rank, queries), "indexer-query")
    yield from _experts(sizes, block, hashed=layer < sizes.hash_layers)


def _attention(sizes: Dimensions, block: str) -> Iterator[TensorShape]:
    heads, groups = sizes.heads * sizes.head_width, sizes.output_groups
    yield TensorShape(f"{block}attn_norm.weight", (sizes.width,), "norm")
    yield TensorShape(f"{block}attn_sinks.weight", (sizes.heads,), "sinks")
    yield TensorShape(f"{block}attn_q_a.weight", (sizes.width, sizes.query_rank), "attention")
    yield TensorShape(f"{block}attn_q_a_norm.weight", (sizes.query_rank,), "norm")
    yield TensorShape(f"{block}attn_q_b.weight", (sizes.query_rank, heads), "attention")
    yield TensorShape(f"{block}attn_kv.weight", (sizes.width, sizes.head_width), "attention")
    yield TensorShape(f"{block}attn_kv_a_norm.weight", (sizes.head_width,), "norm")
    yield TensorShape(f"{block}attn_output_a.weight", (heads // groups, sizes.output_rank * groups), "attention")
    yield TensorShape(f"{block}attn_output_b.weight", (groups * sizes.output_rank, sizes.width), "attention")


def _hyper_connection(sizes: Dimensions, prefix: str, mixes: int, scales: int) -> Iterator[TensorShape]:
    yield TensorShape(f"{prefix}_fn.weight", (sizes.streams * sizes.width, mixes), "mix")
    yield TensorShape(f"{prefix}_base.weight", (mixes,), "mix-base")
    yield TensorShape(f"{prefix}_scale.weight", (scales,), "mix-scale")


def _compressor(sizes: Dimensions, prefix: str, width: int, ratio: int) -> Iterator[TensorShape]:
    # Blocks of ratio 4 overlap: each is made of two halves.
    states = 2 * width if ratio == CSA_RATIO else width
    yield TensorShape(f"{prefix}_kv.weight", (sizes.width, states), "compressor")
    yield TensorShape(f"{prefix}_gate.weight", (sizes.width, states), "compressor")
    yield TensorShape(f"{prefix}_ape.weight", (states, ratio), "offsets")
    yield TensorShape(f"{prefix}_norm.weight", (width,), "norm")


def _experts(sizes: Dimensions, block: str, *, hashed: bool) -> Iterator[TensorShape]:
    width, inner, experts = sizes.width, sizes.expert_width, sizes.experts
    yield TensorShape(f"{block}ffn_gate_inp.weight", (width, experts), "router")
    if hashed:
        yield TensorShape(f"{block}ffn_gate_tid2eid.weight", (sizes.active_experts, sizes.vocabulary), "expert-table")
    else:
        yield TensorShape(f"{block}exp_probs_b.bias", (experts,), "router-bias")
    if sizes.vision_bias:
        yield TensorShape(f"{block}exp_probs_b_vl.bias", (experts,), "vision-bias")
    yield TensorShape(f"{block}ffn_norm.weight", (width,), "norm")
    for part, rows, columns in (("gate", width, inner), ("up", width, inner), ("down", inner, width)):
        use: Use = "expert-down" if part == "down" else "expert"
        yield TensorShape(f"{block}ffn_{part}_exps.weight", (rows, columns, experts), use)
        yield TensorShape(f"{block}ffn_{part}_shexp.weight", (rows, columns), "shared")


def _prediction(sizes: Dimensions, prefix: str) -> Iterator[TensorShape]:
    yield TensorShape(f"{prefix}eh_proj.weight", (2 * sizes.width, sizes.width), "prediction")
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield TensorShape(f"{prefix}{name}.weight", (sizes.width,), "norm")
