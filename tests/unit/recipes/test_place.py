"""Placing models on machines of given memory: what fits is found, what does not is refused with how much is missing."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from fixture_models import FixtureModels
from hypothesis import given, settings
from hypothesis import strategies as st

from dgrctl.artifacts.target import load_target
from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.recipes.memory import ALLOWANCE, MIB, MemoryModel
from dgrctl.recipes.place import memory_sizes, place_model
from dgrctl.recipes.placement import place
from dgrctl.recipes.recipe import Execution, load_recipe

ROOT = Path(__file__).resolve().parents[3]
EXECUTION = Execution(
    threads=1, context=2048, sessions=1, ubatch=128, flash_attention=True, kv_type_k="f16", kv_type_v="f16", prefill_window=1
)
GIB = 1024 * MIB


@pytest.fixture(scope="module")
def target() -> MemoryModel:
    return MemoryModel.of_target(load_target(Layout(ROOT), "deepseek-v4-flash"))


@pytest.fixture(scope="module")
def small(fixture_models: FixtureModels) -> MemoryModel:
    return MemoryModel.of(fixture_models.deepseek4(6, embedding=32))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("128GiB", [128 * GIB]),
        ("1GiB, 2gib,3 GiB", [GIB, 2 * GIB, 3 * GIB]),
        ("24GB", [24 * 10**9]),
        ("1.5MiB", [1536 * 1024]),
        ("4096", [4096]),
    ],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert memory_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "GiB", "12XiB", "-1GiB", "1GiB,", "0GiB", "1,5GiB x", "9999999TiB", "1e9"])
def test_what_is_no_size_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as refusal:
        memory_sizes(text)
    assert re.fullmatch(r"--memory, machine \d+", refusal.value.where or "")


def best_by_trying(model: MemoryModel, memory: Sequence[int]) -> int:
    """The most room that any cut leaves the tightest machine."""
    layers = model.layer_count
    rooms = []
    for cuts in itertools.combinations(range(1, layers), len(memory) - 1):
        stages = zip((0, *cuts), (*cuts, layers), memory, strict=True)
        rooms.append(min(size - model.footprint(begin, end, EXECUTION).total - ALLOWANCE for begin, end, size in stages))
    return max(rooms)


@settings(max_examples=60, deadline=None)
@given(memory=st.lists(st.integers(17 * MIB, 40 * MIB), min_size=1, max_size=6))
def test_no_cut_leaves_the_tightest_machine_more_room(small: MemoryModel, memory: list[int]) -> None:
    room = best_by_trying(small, memory)
    if room < 0:
        with pytest.raises(InputError, match=f"lacks at least {-room:,} bytes"):
            place(small, EXECUTION, memory)
        return
    placed = place(small, EXECUTION, memory)
    assert min(stage.free for stage in placed) == room
    assert [stage.layers.begin for stage in placed] == [0, *(stage.layers.end for stage in placed[:-1])]
    assert placed[-1].layers.end == small.layer_count


def test_a_byte_too_little_is_refused_and_named(small: MemoryModel) -> None:
    needed = [stage.needed for stage in place(small, EXECUTION, [GIB, GIB])]
    assert all(stage.free == 0 for stage in place(small, EXECUTION, needed))
    with pytest.raises(InputError, match="lacks at least 1 bytes") as refusal:
        place(small, EXECUTION, [needed[0], needed[1] - 1])
    assert refusal.value.where == "--memory, machine 1"
    assert "1 too many" in (refusal.value.detail or "")
    assert "--context" in (refusal.value.remedy or "")


def test_more_machines_than_layers_are_refused(small: MemoryModel) -> None:
    with pytest.raises(InputError, match="7 machines for the 6 layers"):
        place(small, EXECUTION, [GIB] * 7)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("deepseek-v4-flash.*.toml")), ids=lambda path: path.stem)
def test_shipped_placements_are_those_that_the_command_computes(path: Path) -> None:
    recipe = load_recipe(path)
    (command,) = re.findall(r"# Placed by: dgrctl recipe place (.*)", path.read_text())
    model, _, memory, _, context = shlex.split(command)
    assert (model, int(context)) == (recipe.model, recipe.execution.context)
    _, placed = place_model(Layout(ROOT), model, memory, msgspec.to_builtins(recipe.execution))
    assert tuple((stage.layers.begin, stage.layers.end) for stage in placed) == recipe.placement.ranges


def test_two_to_four_and_more_than_ten_stages_are_shipped() -> None:
    recipes = [load_recipe(path) for path in (ROOT / "recipes").glob("deepseek-v4-flash.*.toml")]
    counts = sorted(len(recipe.placement.ranges or ()) for recipe in recipes)
    assert counts[:3] == [2, 3, 4]
    assert counts[-1] >= 10


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"context": 2**21}, "--context"),
        ({"ubatch": 0}, "deepseek"),
        ({"ubatch": 9000}, "ubatch"),
        ({"kv_type_k": "q4_0"}, "kv_type_k"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(change: dict[str, object], where: str) -> None:
    with pytest.raises(InputError) as refusal:
        place_model(Layout(ROOT), "deepseek-v4-flash", "1TiB", msgspec.to_builtins(EXECUTION) | change)
    assert where in (refusal.value.where or "")


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InputError, match="unknown model"):
        place_model(Layout(ROOT), "nope", "1TiB", msgspec.to_builtins(EXECUTION))


def test_state_grows_with_context_and_sessions_and_belongs_to_owned_layers(target: MemoryModel) -> None:
    def state(begin: int, end: int, **changes: int) -> int:
        return target.footprint(begin, end, msgspec.structs.replace(EXECUTION, **changes)).state

    assert state(0, 43, context=65536) > state(0, 43)
    assert state(0, 43, sessions=3) == 3 * state(0, 43)
    # Beside what every layer keeps: 4 a row for four positions and the indexer's, 128 a row for 128.
    assert state(2, 3, context=65536) > state(3, 4, context=65536) > state(0, 1, context=65536)


def test_computing_is_what_was_measured_of_the_real_model(target: MemoryModel) -> None:
    """Published: about 2 GiB at 16k positions and 65.5 GiB at 1M, with a ubatch of 512; a mask of all positions is 3 GiB more."""

    def compute(context: int) -> float:
        return target.footprint(0, 43, msgspec.structs.replace(EXECUTION, context=context, ubatch=512)).compute / GIB

    assert 1.9 < compute(16384) < 2.3
    assert 65.5 < compute(1048576) < 69.0


def test_an_architecture_whose_caches_are_not_described_is_refused(fixture_models: FixtureModels) -> None:
    model = fixture_models.deepseek4(6, embedding=32)
    data = model.first_part.read_bytes().replace(b"deepseek4", b"deepseek9")
    other = model.first_part.with_name("other.gguf")
    other.write_bytes(data)
    try:
        with pytest.raises(InputError, match="no memory model is known for the architecture 'deepseek9'"):
            MemoryModel.of(dataclasses.replace(model, parts=(other,)))
    finally:
        other.unlink()
