"""Fixture models: the same bytes for the same arguments, the structure they promise, and files that another reader takes."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import pytest
from fixture_models import FixtureModels

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.synth.deepseek4 import (
    CONTEXT,
    HASH_LAYERS,
    SELECTED_BLOCKS,
    STREAMS,
    VOCABULARY,
    WINDOW,
    DeepSeek4,
    Weights,
)
from dgrctl.artifacts.synth.quantise import encode
from dgrctl.artifacts.synth.stream import Stream
from dgrctl.errors import InputError

Tensors = dict[str, tuple[str, bytes]]


def contents(model: LocalModel) -> Tensors:
    """Every tensor's type and bytes, as the gguf package reads them."""
    readers = [gguf.GGUFReader(path) for path in model.parts]
    return {tensor.name: (tensor.tensor_type.name, tensor.data.tobytes()) for reader in readers for tensor in reader.tensors}


# The bytes of every fixture rest on these staying what they are. If one changes, the generator's version must, too.
DIGESTS: dict[Weights, str] = {
    "f32": "baa4a761b07bc21b3ba16997fe91b64e6395d9c23144683e04424fe6263e4baf",
    "f16": "3f9e05ad64143805bd393064c622a96653190d06acee7d4322c752a867451d64",
    "mixed": "0ca4acd9c78b488b6f3d2f8acb3fea90ae95fc1d317c68f30da34c12ab821b16",
}


@pytest.mark.parametrize("weights", DIGESTS)
def test_the_same_arguments_give_the_same_bytes(fixture_models: FixtureModels, weights: Weights) -> None:
    assert fixture_models.deepseek4(weights=weights).set_digest == DIGESTS[weights]


def test_another_seed_gives_other_weights_and_the_same_shapes(fixture_models: FixtureModels) -> None:
    one, other = contents(fixture_models.deepseek4(seed=1)), contents(fixture_models.deepseek4(seed=2))
    assert one.keys() == other.keys()
    assert not [name for name in one if one[name][1] == other[name][1]]
    assert [len(data) for _, data in one.values()] == [len(data) for _, data in other.values()]


def test_a_tensor_more_shifts_no_other(fixture_models: FixtureModels) -> None:
    plain, biased = contents(fixture_models.deepseek4()), contents(fixture_models.deepseek4(vision_bias=True))
    assert {name: biased[name] for name in plain} == plain
    assert sorted(biased.keys() - plain.keys()) == sorted(f"blk.{layer}.exp_probs_b_vl.bias" for layer in range(9))


def test_a_split_set_holds_the_tensors_of_the_one_file_and_metadata_alone_in_its_first(fixture_models: FixtureModels) -> None:
    one, split = fixture_models.deepseek4(), fixture_models.deepseek4(parts=4)
    assert contents(split) == contents(one)
    assert [path.name for path in split.parts] == [f"{one.first_part.stem}-0000{part}-of-00004.gguf" for part in (1, 2, 3, 4)]
    headers = [read_header(path) for path in split.parts]
    assert headers[0].tensors == ()
    assert min(len(header.tensors) for header in headers[1:]) > 0
    whole = read_header(one.first_part).metadata
    split_keys = {"split.no", "split.count", "split.tensors.count"}
    assert headers[0].metadata.keys() == whole.keys() | split_keys
    assert all(header.metadata.keys() == split_keys for header in headers[1:])


def test_it_has_the_structure_of_the_real_model(fixture_models: FixtureModels) -> None:
    model = fixture_models.deepseek4(layers=43)
    reader = gguf.GGUFReader(model.first_part)
    ratios = reader.fields["deepseek4.attention.compress_ratios"].contents()
    names = {tensor.name for tensor in reader.tensors}
    assert model.layer_count == 43
    assert set(ratios[:43]) == {0, 4, 128}
    assert {f"blk.{layer}.ffn_gate_tid2eid.weight" in names for layer in range(HASH_LAYERS)} == {True}
    assert f"blk.{HASH_LAYERS}.exp_probs_b.bias" in names
    assert "blk.43.nextn.eh_proj.weight" in names
    assert reader.fields["deepseek4.hyper_connection.count"].contents() == STREAMS == 4
    assert SELECTED_BLOCKS < CONTEXT // 4
    assert WINDOW < CONTEXT


def test_hash_tables_name_different_experts(fixture_models: FixtureModels) -> None:
    (table,) = [
        tensor.data
        for tensor in gguf.GGUFReader(fixture_models.deepseek4().first_part).tensors
        if "blk.0.ffn_gate_tid" in tensor.name
    ]
    assert table.shape == (VOCABULARY, 2)
    assert (table[:, 0] != table[:, 1]).all()
    assert set(np.unique(table)) == set(range(8))


def test_mixed_weights_hold_every_kind_of_block(fixture_models: FixtureModels) -> None:
    kinds = {kind for kind, _ in contents(fixture_models.deepseek4(weights="mixed")).values()}
    assert kinds == {"F32", "F16", "Q8_0", "Q4_K", "Q4_0", "Q5_0", "I32"}


def test_values_have_the_deviation_asked_for() -> None:
    values = Stream("test/1", 1).bell("a", (1000, 100), 0.25, 2.0)
    assert math.isclose(float(values.mean()), 2.0, abs_tol=0.005)
    assert math.isclose(float(values.std()), 0.25, rel_tol=0.01)


def test_bits_depend_on_generator_seed_and_name_alone() -> None:
    stream = Stream("test/1", 1)
    assert stream.bits("a", 8) == stream.bits("a", 16)[:8] == bytes.fromhex("8edc0c164948ffa9")
    assert (
        len({stream.bits("a", 8), stream.bits("b", 8), Stream("test/1", 2).bits("a", 8), Stream("test/2", 1).bits("a", 8)}) == 4
    )


def test_q4_k_blocks_read_back_as_what_was_written() -> None:
    values = Stream("test/1", 1).bell("a", (16, 512), 0.1)
    data = np.frombuffer(encode(values, "Q4_K"), dtype=np.uint8).reshape(16, -1)
    read = gguf.dequantize(data, gguf.GGMLQuantizationType.Q4_K)
    # Half a step of a sub-block's span in 15 parts, and what scale and minimum lose in six bits.
    span = np.ptp(values.reshape(-1, 32), axis=1).max()
    assert np.abs(read - values).max() < span / 15 * 0.75
    zeros = np.zeros((1, 256), dtype=np.float32)
    assert not gguf.dequantize(np.frombuffer(encode(zeros, "Q4_K"), np.uint8)[None], gguf.GGMLQuantizationType.Q4_K).any()


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="no whole blocks of Q4_K"):
        encode(np.zeros((2, 128), dtype=np.float32), "Q4_K")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"layers": 3}, "--layers"),
        ({"layers": 512}, "--layers"),
        ({"seed": -1}, "--seed"),
        ({"seed": 2**53}, "--seed"),
        ({"embedding": 0}, "--embedding"),
        ({"embedding": 100}, "--embedding"),
        ({"weights": "mixed", "embedding": 128}, "--embedding"),
    ],
)
def test_what_makes_no_model_is_refused(changes: dict[str, object], where: str) -> None:
    arguments = {"layers": 8, "seed": 1, "weights": "f16", "embedding": 128} | changes
    with pytest.raises(InputError) as refusal:
        DeepSeek4(**arguments)  # type: ignore[arg-type]
    assert refusal.value.where == where


def test_more_parts_than_tensors_are_refused(fixture_models: FixtureModels, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be split into 5000 files"):
        fixture_models.deepseek4(parts=5000)
    with pytest.raises(InputError, match="cannot be split into 0 files"):
        fixture_models.deepseek4(parts=0)
