"""Tensors are counted where a route holds them; a set that is none is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small_models import VOCABULARY, WIDTH, write_gguf

from dgrctl.artifacts.gguf_header import GgufHeader, Scalar, Tensor, read_header
from dgrctl.artifacts.inventory import take_inventory
from dgrctl.errors import InputError

EMBEDDING = VOCABULARY * WIDTH * 4
LAYER = (WIDTH + WIDTH * WIDTH) * 4
NORM = WIDTH * 4


@pytest.fixture
def header(tmp_path: Path) -> GgufHeader:
    return read_header(write_gguf(tmp_path / "tiny.gguf"))


def changed(header: GgufHeader, **metadata: Scalar) -> GgufHeader:
    """With these pairs (``__`` stands for a dot); None removes one."""
    pairs = {**header.metadata, **{key.replace("__", "."): value for key, value in metadata.items()}}
    return dataclasses.replace(header, metadata={key: value for key, value in pairs.items() if value is not None})


def with_tensors(header: GgufHeader, *names: str, without: str = "") -> GgufHeader:
    added = tuple(Tensor(name, "F32", (WIDTH,), 0, NORM) for name in names)
    return dataclasses.replace(header, tensors=tuple(one for one in header.tensors if one.name != without) + added)


def refusal(*headers: GgufHeader) -> str:
    with pytest.raises(InputError) as caught:
        take_inventory(headers)
    assert caught.value.where == str(headers[0].path)
    assert caught.value.remedy
    return caught.value.what


def test_a_tied_embedding_is_held_at_both_ends(header: GgufHeader) -> None:
    found = take_inventory([header])
    assert found.layer_bytes == (LAYER,) * 4
    assert found.head_bytes == EMBEDDING
    assert found.tail_bytes == NORM + EMBEDDING
    assert found.tied_bytes == EMBEDDING
    assert (found.architecture, found.quantisation, found.context_length) == ("llama", "F32", 256)


def test_an_output_head_of_its_own_is_the_tails(tmp_path: Path) -> None:
    found = take_inventory([read_header(write_gguf(tmp_path / "untied.gguf", tied=False))])
    assert (found.head_bytes, found.tail_bytes, found.tied_bytes) == (EMBEDDING, NORM + EMBEDDING, 0)


def test_tensors_without_a_layer_in_their_name(header: GgufHeader) -> None:
    found = take_inventory([with_tensors(header, "rope_freqs.weight", "token_embd_norm.weight", "hc_head_fn.weight")])
    assert found.shared_bytes == NORM
    assert found.head_bytes == EMBEDDING + NORM
    assert found.tail_bytes == NORM + EMBEDDING + NORM


def test_prediction_layers_count_for_no_stage(header: GgufHeader) -> None:
    found = take_inventory([changed(header, llama__nextn_predict_layers=1)])
    assert found.layer_bytes == (LAYER,) * 3
    assert found.tail_bytes == NORM + EMBEDDING
    assert found.prediction_bytes == LAYER


def test_a_set_in_two_parts(header: GgufHeader) -> None:
    half = len(header.tensors) // 2
    split: dict[str, Scalar] = {"split__count": 2, "split__tensors__count": len(header.tensors)}
    first = dataclasses.replace(changed(header, split__no=0, **split), tensors=header.tensors[:half])
    second = dataclasses.replace(changed(header, split__no=1, **split), tensors=header.tensors[half:])
    assert take_inventory([first, second]) == take_inventory([header])
    assert "a set of 2, and the manifest names 1" in refusal(first)
    assert "is part 1 of its set and stands in place 0" in refusal(second, first)
    assert "stands in another part as well" in refusal(first, dataclasses.replace(second, tensors=header.tensors))
    assert "promises" in refusal(first, dataclasses.replace(second, tensors=header.tensors[half:-1]))
    assert "split.no is missing" in refusal(changed(header, split__count=2), second)
    assert "the manifest names 2" in refusal(header, header)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"general__architecture": None}, "general.architecture is missing"),
        ({"general__architecture": 5}, "general.architecture is 5"),
        ({"general__architecture": "../../x"}, "must be the name of an architecture"),
        ({"llama__block_count": None}, "llama.block_count is missing"),
        ({"llama__block_count": 0}, "llama.block_count is 0"),
        ({"llama__block_count": 4_000_000_000}, "from 1 to 512"),
        ({"llama__block_count": "4"}, "llama.block_count is '4'"),
        ({"llama__block_count": True}, "llama.block_count is True"),
        ({"llama__block_count": 3}, "belongs to no layer: there are 3"),
        ({"llama__block_count": 5}, "layer 4 of 5 has no tensors"),
        ({"llama__nextn_predict_layers": 4}, "from 0 to 3"),
        ({"llama__context_length": None}, "llama.context_length is missing"),
    ],
)
def test_refuses_contradicting_pairs(header: GgufHeader, metadata: dict[str, Scalar], expected: str) -> None:
    assert expected in refusal(changed(header, **metadata))


def test_refuses_a_model_without_an_embedding(header: GgufHeader) -> None:
    assert "no tensor 'token_embd.weight'" in refusal(with_tensors(header, without="token_embd.weight"))


def test_an_unknown_file_type_is_named(header: GgufHeader) -> None:
    assert take_inventory([changed(header, general__file_type=999)]).quantisation == "UNKNOWN_999"
