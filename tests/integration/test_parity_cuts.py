"""Every interior cut of SmolLM2, and three stages: not one bit differs from the whole model, on both sides of one ubatch.

One reference serves all routes. It is asked once for each sequence of decode calls, with all cuts at once; a route that agrees
with the others makes the same calls, and one that does not is compared with a replay of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from dgrctl.certify.bits import Tally
from dgrctl.certify.parity import CachedOracle
from dgrctl.certify.parity_set import ReferenceOracle, compare_set, plans, tokenize
from dgrctl.certify.plan import OutputMode
from dgrctl.certify.prompts import Prompt, PromptSet, require_crossing
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe

LAYERS = 30
UBATCH = 32
DECODE_STEPS = 8
PROMPTS = PromptSet(
    schema=1,
    name="cuts",
    prompts=[
        Prompt(id="short", language="en", text="The three primary colours are"),
        Prompt(
            id="crossing",
            language="de",
            text="Am Morgen lag Nebel über dem Fluss, und die Brücke schien im Nichts zu enden. Wer hinüber wollte, hielt an.",
        ),
    ],
)


@pytest.fixture(scope="module")
def cut_recipe(recipe: Recipe) -> Recipe:
    """The certified recipe with a small ubatch, so that a short prompt crosses it.

    One thread, since threads of one stage wait for each other actively, which is slow on a machine that does other things too;
    certification compares at the recipe's own number.
    """
    execution = msgspec.structs.replace(recipe.execution, ubatch=UBATCH, context=256, sessions=1, threads=1)
    return msgspec.structs.replace(recipe, execution=execution)


@dataclass(frozen=True)
class Whole:
    """The whole model's answers at every cut, and the prompts' tokens by prompt."""

    oracle: CachedOracle
    tokens: dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def whole(layout: Layout, cut_recipe: Recipe, verified_model: LocalModel, verified_build: BuildRecord) -> Iterator[Whole]:
    """One reference for all routes."""
    with LocalReference(layout, cut_recipe, verified_model, verified_build) as reference:
        yield Whole(CachedOracle(ReferenceOracle(reference), range(1, LAYERS)), tokenize(reference, PROMPTS))


@pytest.fixture(scope="module")
def cut_route(
    layout: Layout, cut_recipe: Recipe, verified_model: LocalModel, verified_build: BuildRecord
) -> Callable[[tuple[int, ...]], LocalRoute]:
    """Makes a route with these cuts; enter it to start its workers."""

    def make(cuts: tuple[int, ...]) -> LocalRoute:
        ranges = [LayerRange(begin, end) for begin, end in zip((0, *cuts), (*cuts, LAYERS), strict=True)]
        return LocalRoute(layout, cut_recipe, verified_model, verified_build, ranges, allow_probes=True)

    return make


def test_these_are_all_interior_cuts_and_both_sides_of_one_ubatch(verified_model: LocalModel, whole: Whole) -> None:
    assert verified_model.layer_count == LAYERS
    require_crossing(PROMPTS, {name: len(tokens) for name, tokens in whole.tokens.items()}, UBATCH)


@pytest.mark.parametrize("cuts", [*((cut,) for cut in range(1, LAYERS)), (10, 20)], ids=lambda cuts: "-".join(map(str, cuts)))
def test_no_bit_differs(
    cut_route: Callable[[tuple[int, ...]], LocalRoute],
    whole: Whole,
    cuts: tuple[int, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    modes = list(OutputMode)
    planned = plans(PROMPTS, whole.tokens, modes=modes, decode_steps=DECODE_STEPS, ubatch=UBATCH, stage_count=len(cuts) + 1)
    with cut_route(cuts) as route:
        results = compare_set(route, whole.oracle, planned, tmp_path)
        head = route.stages[0].description
    logits, boundaries = Tally(), Tally()
    for result in results:
        logits.merge(result.logits)
        for tally in result.boundaries.values():
            boundaries.merge(tally)
    with capsys.disabled():
        print(f"\n  cut {cuts}: of {logits.compared:,} logits {logits.differing} differ, ", end="")
        print(f"of {boundaries.compared:,} boundary values {boundaries.differing}", end=" ")
    positions = sum(len(tokens) + DECODE_STEPS for tokens in whole.tokens.values())
    last = len(whole.tokens) * (1 + DECODE_STEPS)
    assert logits.compared == (positions + last) * head.vocabulary
    assert boundaries.compared == len(modes) * positions * len(cuts) * head.streams * head.width
    assert all(result.identical for result in results)
