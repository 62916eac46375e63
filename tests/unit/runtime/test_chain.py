"""Whether workers form one route; each way in which they do not is refused and named."""

from __future__ import annotations

import pytest
from dgr.v1 import common_pb2, worker_pb2

from dgrctl.errors import InputError
from dgrctl.recipes.fingerprint import KEYS
from dgrctl.runtime.chain import Stage, check_chain


def stages(*ranges: tuple[int, int], layers: int = 30) -> list[Stage]:
    document = {key: f"value of {key}" for key in KEYS}
    return [
        Stage.of(
            index,
            f"10.0.0.{index}:7001",
            worker_pb2.DescribeResponse(
                range=common_pb2.LayerRange(begin=begin, end=end), layer_count=layers, compatibility=document
            ),
        )
        for index, (begin, end) in enumerate(ranges)
    ]


def refusal(route: list[Stage]) -> InputError:
    with pytest.raises(InputError) as caught:
        check_chain(route)
    return caught.value


@pytest.mark.parametrize("ranges", [[(0, 30)], [(0, 15), (15, 30)], [(0, 1), (1, 29), (29, 30)]])
def test_whole_models_pass(ranges: list[tuple[int, int]]) -> None:
    check_chain(stages(*ranges))


@pytest.mark.parametrize(
    ("ranges", "where", "words"),
    [
        ([(15, 30), (0, 15)], "10.0.0.0:7001: range.begin", "stage 0 (layers 15:30) must begin at layer 0"),
        ([(15, 30)], "10.0.0.0:7001: range.begin", "must begin at layer 0"),
        ([(0, 10), (15, 30)], "10.0.0.1:7001: range.begin", "stage 1 (layers 15:30) must begin at layer 10"),
        ([(0, 20), (15, 30)], "10.0.0.1:7001: range.begin", "must begin at layer 20"),
        ([(0, 15), (0, 15)], "10.0.0.1:7001: range.begin", "must begin at layer 15"),
        ([(0, 15)], "10.0.0.0:7001: range.end", "the route ends at layer 15, the model has 30"),
    ],
)
def test_ranges_that_are_no_chain(ranges: list[tuple[int, int]], where: str, words: str) -> None:
    error = refusal(stages(*ranges))
    assert error.where == where
    assert words in error.what
    assert error.remedy


@pytest.mark.parametrize("field", KEYS)
def test_any_differing_field_is_named_with_both_values(field: str) -> None:
    route = stages((0, 15), (15, 30))
    route[1].description.compatibility[field] = "another"
    error = refusal(route)
    assert f"{field} is 'another' here and 'value of {field}' there" in error.what
    assert error.where == f"10.0.0.1:7001: compatibility.{field}"


def test_a_field_that_one_side_lacks_is_named() -> None:
    route = stages((0, 15), (15, 30))
    del route[0].description.compatibility["runtime.stack"]
    assert "runtime.stack is 'value of runtime.stack' here and 'absent' there" in refusal(route).what
    route = stages((0, 15), (15, 30))
    route[1].description.compatibility["execution.novelty"] = "on"
    assert "execution.novelty" in (refusal(route).where or "")


def test_models_of_different_length_do_not_fit() -> None:
    route = [*stages((0, 15)), *stages((0, 15), (15, 32), layers=32)[1:]]
    assert refusal(route).where == "10.0.0.1:7001: layer_count"
