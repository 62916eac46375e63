"""Every interior cut of the real models, and three stages: not one bit differs from the whole, on both sides of one ubatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cut_parity import Cuts, assert_no_bit_differs, every_cut
from token_parity import Rig, token_prompt

from dgrctl.certify.parity_set import ReferenceOracle
from dgrctl.certify.plan import OutputMode
from dgrctl.layout import Layout

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe

SMOLLM2_LAYERS = 30
GEMMA_LAYERS = 18


def every(layers: int, *others: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*((cut,) for cut in range(1, layers)), *others]


def named(cuts: tuple[int, ...]) -> str:
    return "-".join(map(str, cuts))


@pytest.fixture(scope="module")
def smollm2(layout: Layout, recipe: Recipe, verified_model: LocalModel, verified_build: BuildRecord) -> Iterator[Cuts]:
    with every_cut(layout, recipe, verified_model, verified_build) as cuts:
        yield cuts


@pytest.fixture(scope="module")
def gemma(layout: Layout, recipe: Recipe, gemma_model: LocalModel, verified_build: BuildRecord) -> Iterator[Cuts]:
    with every_cut(layout, recipe, gemma_model, verified_build) as cuts:
        yield cuts


def test_these_are_all_interior_cuts_and_both_sides_of_one_ubatch(smollm2: Cuts, gemma: Cuts) -> None:
    assert (smollm2.model.layer_count, gemma.model.layer_count) == (SMOLLM2_LAYERS, GEMMA_LAYERS)
    smollm2.require_crossing()
    gemma.require_crossing()


@pytest.mark.parametrize("cuts", every(SMOLLM2_LAYERS, (10, 20)), ids=named)
def test_no_bit_of_smollm2_differs(
    smollm2: Cuts, cuts: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = smollm2.compare(cuts, tmp_path)
    with capsys.disabled():
        assert_no_bit_differs(compared, cuts)


@pytest.mark.parametrize("cuts", every(GEMMA_LAYERS, (6, 12)), ids=named)
def test_no_bit_of_gemma_differs(gemma: Cuts, cuts: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows in five of six layers, an embedding that is scaled once, and one that is tied to the output."""
    compared = gemma.compare(cuts, tmp_path)
    with capsys.disabled():
        assert_no_bit_differs(compared, cuts)


def test_no_bit_of_gemma_differs_once_its_window_cache_has_wrapped(
    fixture_rig: Rig, gemma_model: LocalModel, tmp_path: Path, say: Callable[[object], None]
) -> None:
    """Longer than window and ubatch together, so that cells are used again; then the same slot again, short and long.

    The reference starts afresh each time: what a slot held before must not show, not even in the order of its cells.
    """
    rig = fixture_rig.executing(context=1024, threads=2)
    prompts = [token_prompt(length, seed=seed) for length, seed in ((900, 1), (40, 2), (900, 3))]
    with rig.reference(gemma_model) as reference, rig.route(gemma_model, 6, 12) as route:
        found = rig.compare(route, ReferenceOracle(reference), prompts, tmp_path, modes=[OutputMode.LAST])
    say(found)
    found.require_identical()
