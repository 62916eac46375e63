"""Placement: a recipe against its model, and cuts that are exactly as even as they can be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import MODEL_ID, TinyModel
from tiny_recipes import NAME, write_recipe

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.manifest import load_model_manifest
from dgrctl.artifacts.provision import verified_model
from dgrctl.errors import FetchError, InputError
from dgrctl.recipes.architectures import require_splittable
from dgrctl.recipes.check import resolved
from dgrctl.recipes.placement import LayerRange, balanced, check_model, resolve
from dgrctl.recipes.recipe import load_recipe

STAGES = "stages = 2"


@pytest.fixture
def model(tiny: TinyModel) -> LocalModel:
    return verified_model(tiny.layout, MODEL_ID)


def test_a_count_is_balanced(model: LocalModel, tmp_path: Path) -> None:
    assert resolve(load_recipe(write_recipe(tmp_path)), model) == [LayerRange(0, 2), LayerRange(2, 4)]


def test_ranges_are_taken_as_they_are(model: LocalModel, tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, (STAGES, "ranges = [[0, 1], [1, 4]]")))
    assert resolve(recipe, model) == [LayerRange(0, 1), LayerRange(1, 4)]


def test_a_stage_for_every_layer_and_one_for_all(model: LocalModel, tmp_path: Path) -> None:
    every = load_recipe(write_recipe(tmp_path, (STAGES, "stages = 4")))
    assert [str(layers) for layers in resolve(every, model)] == ["[0, 1)", "[1, 2)", "[2, 3)", "[3, 4)"]
    one = load_recipe(write_recipe(tmp_path, (STAGES, "stages = 1")))
    assert resolve(one, model) == [LayerRange(0, 4)]


MISFITS = {
    "more stages than layers": ((STAGES, "stages = 5"), "placement.stages", "name at most 4"),
    "a range past the model": ((STAGES, "ranges = [[0, 2], [2, 5]]"), "placement.ranges[1]", "end it at 4"),
    "layers left over": ((STAGES, "ranges = [[0, 2], [2, 3]]"), "placement.ranges[1]", "end the last range at 4"),
    "another model": ((MODEL_ID, "other"), "model", "it is for other, not for tiny-f32"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_refuses_before_the_model_is_there(kind: str, tiny: TinyModel, tmp_path: Path) -> None:
    edit, field, expected = MISFITS[kind]
    recipe = load_recipe(write_recipe(tmp_path, edit))
    with pytest.raises(InputError) as caught:
        check_model(recipe, load_model_manifest(tiny.layout, MODEL_ID))
    assert caught.value.where == f"{NAME}.toml: {field}"
    assert expected in f"{caught.value.what} {caught.value.remedy}"


def test_resolving_refuses_the_same(model: LocalModel, tmp_path: Path) -> None:
    for edit, field, _ in MISFITS.values():
        with pytest.raises(InputError) as caught:
            resolve(load_recipe(write_recipe(tmp_path, edit)), model)
        assert caught.value.where == f"{NAME}.toml: {field}"


def test_refuses_an_architecture_that_cannot_be_split(tiny: TinyModel, tmp_path: Path) -> None:
    manifest = load_model_manifest(tiny.layout, MODEL_ID)
    recipe = load_recipe(write_recipe(tmp_path))
    require_splittable(tiny.layout, recipe, manifest)
    for name, reason in (("t5", "is unsupported: an encoder"), ("never-heard-of", "is not on the roster")):
        with pytest.raises(InputError, match=reason) as caught:
            require_splittable(tiny.layout, recipe, msgspec.structs.replace(manifest, architecture=name))
        assert caught.value.where == f"{NAME}.toml: model"


def test_refuses_a_context_beyond_the_models(model: LocalModel, tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, ("context = 128", "context = 257")))
    with pytest.raises(InputError, match="was made for 256") as caught:
        resolve(recipe, model)
    assert caught.value.where == f"{NAME}.toml: execution.context"
    assert resolve(recipe, dataclasses.replace(model, context_length=257))


def test_check_shows_roles_and_bytes(tiny: TinyModel, tmp_path: Path) -> None:
    found = resolved(tiny.layout, write_recipe(tmp_path, (STAGES, "stages = 3")))
    model = found.model
    assert [stage.role for stage in found.stages] == ["head", "middle", "tail"]
    assert sum(stage.bytes for stage in found.stages) == sum(model.layer_bytes) + model.head_bytes + model.tail_bytes
    (alone,) = resolved(tiny.layout, write_recipe(tmp_path, (STAGES, "stages = 1"))).stages
    assert (alone.role, alone.bytes) == ("whole", sum(stage.bytes for stage in found.stages) - model.tied_bytes)


def test_check_refuses_a_misfit_before_it_asks_for_the_model(tiny: TinyModel, tmp_path: Path) -> None:
    tiny.stored.unlink()
    with pytest.raises(InputError):
        resolved(tiny.layout, write_recipe(tmp_path, (STAGES, "stages = 5")))
    with pytest.raises(InputError, match="unknown model 'other'"):
        resolved(tiny.layout, write_recipe(tmp_path, (MODEL_ID, "other")))
    with pytest.raises(FetchError, match="has not been pulled"):
        resolved(tiny.layout, write_recipe(tmp_path))


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes as a LocalModel has them."""

    layers: tuple[int, ...]
    head: int
    tail: int
    tied: int

    def stage(self, begin: int, end: int) -> int:
        is_head, is_tail = begin == 0, end == len(self.layers)
        both = self.tied if is_head and is_tail else 0
        return sum(self.layers[begin:end]) + self.head * is_head + self.tail * is_tail - both

    def every_cut(self, stages: int) -> Iterator[list[LayerRange]]:
        """All ways to cut, the earliest cuts first."""
        for cuts in combinations(range(1, len(self.layers)), stages - 1):
            yield [LayerRange(begin, end) for begin, end in pairwise((0, *cuts, len(self.layers)))]

    def cost(self, ranges: list[LayerRange]) -> tuple[int, int]:
        sizes = [self.stage(one.begin, one.end) for one in ranges]
        return max(sizes), sum(size * size for size in sizes)


@st.composite
def sizes_and_stages(draw: st.DrawFn) -> tuple[Sizes, int]:
    layers = draw(st.lists(st.integers(1, 12) | st.integers(1, 2**40), min_size=1, max_size=9))
    tied = draw(st.integers(0, 40))
    extra = st.integers(0, 40)
    return Sizes(tuple(layers), tied + draw(extra), tied + draw(extra), tied), draw(st.integers(1, len(layers)))


@given(sizes_and_stages())
def test_balanced_is_the_best_of_all_cuts(case: tuple[Sizes, int]) -> None:
    sizes, stages = case
    found = balanced(len(sizes.layers), stages, sizes.stage)
    best = min(sizes.every_cut(stages), key=sizes.cost)  # the first of equals: the earliest cuts
    assert found == best


@given(sizes_and_stages())
def test_balanced_covers_every_layer_once_and_is_deterministic(case: tuple[Sizes, int]) -> None:
    sizes, stages = case
    found = balanced(len(sizes.layers), stages, sizes.stage)
    assert len(found) == stages
    assert [layer for one in found for layer in range(one.begin, one.end)] == list(range(len(sizes.layers)))
    assert all(one.begin < one.end for one in found)
    assert found == balanced(len(sizes.layers), stages, sizes.stage)


@pytest.mark.parametrize("stages", [0, -1, 5])
def test_balanced_refuses_an_impossible_count(stages: int) -> None:
    with pytest.raises(ValueError, match="cannot make"):
        balanced(4, stages, lambda begin, end: end - begin)


def test_balanced_copes_with_the_largest_model() -> None:
    ranges = balanced(512, 64, lambda begin, end: end - begin)
    assert {one.end - one.begin for one in ranges} == {8}
