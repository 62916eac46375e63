"""Every cut of a model against the whole model: one reference serves all routes of a module's tests.

It is asked once for each sequence of decode calls, with all cuts at once; a route that agrees with the others makes the same
calls, and one that does not is compared with a replay of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dgrctl.artifacts.local import LocalModel
from dgrctl.certify.bits import Tally
from dgrctl.certify.parity import CachedOracle
from dgrctl.certify.parity_set import ReferenceOracle, compare_set, plans, tokenize
from dgrctl.certify.plan import OutputMode
from dgrctl.certify.prompts import Prompt, PromptSet, require_crossing
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.recipes.recipe import Recipe
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute

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
            text="Am Morgen lag Nebel über dem Fluss, und die Brücke schien im Nichts zu enden. Wer hinüber wollte, hielt an "
            "und horchte auf Schritte.",
        ),
    ],
)


def small(recipe: Recipe, model: LocalModel) -> Recipe:
    """``recipe`` for ``model`` with a small ubatch, so that a short prompt crosses it.

    One thread, since threads of one stage wait for each other actively, which is slow on a machine that does other things too;
    certification compares at the recipe's own number.
    """
    execution = msgspec.structs.replace(recipe.execution, ubatch=UBATCH, context=256, sessions=1, threads=1)
    return msgspec.structs.replace(recipe, model=model.manifest.id, execution=execution)


@dataclass
class Compared:
    """What one route's runs gave, beside the whole model's; ``expected`` counts what had to be compared."""

    logits: Tally = field(default_factory=Tally)
    boundaries: Tally = field(default_factory=Tally)
    expected_logits: int = 0
    expected_boundaries: int = 0
    identical: bool = True


@dataclass(frozen=True)
class Cuts:
    """The whole model's answers at every cut, and routes of the same model with any of them."""

    layout: Layout
    recipe: Recipe
    model: LocalModel
    build: BuildRecord
    oracle: CachedOracle
    tokens: dict[str, tuple[int, ...]]

    def require_crossing(self) -> None:
        """Fails unless there are prompts on both sides of one ubatch."""
        require_crossing(PROMPTS, {name: len(tokens) for name, tokens in self.tokens.items()}, UBATCH)

    def compare(self, cuts: Sequence[int], folder: Path) -> Compared:
        """Runs the prompts over a route with ``cuts``, spooling to ``folder``."""
        layers = self.model.layer_count
        ranges = [LayerRange(begin, end) for begin, end in zip((0, *cuts), (*cuts, layers), strict=True)]
        modes = list(OutputMode)
        planned = plans(PROMPTS, self.tokens, modes=modes, decode_steps=DECODE_STEPS, ubatch=UBATCH, stage_count=len(cuts) + 1)
        compared = Compared()
        with LocalRoute(self.layout, self.recipe, self.model, self.build, ranges, allow_probes=True) as route:
            for result in compare_set(route, self.oracle, planned, folder):
                compared.logits.merge(result.logits)
                for tally in result.boundaries.values():
                    compared.boundaries.merge(tally)
                compared.identical &= result.identical
            head = route.stages[0].description
        positions = sum(len(tokens) + DECODE_STEPS for tokens in self.tokens.values())
        last = len(self.tokens) * (1 + DECODE_STEPS)
        compared.expected_logits = (positions + last) * head.vocabulary
        compared.expected_boundaries = len(modes) * positions * len(cuts) * head.streams * head.width
        return compared


@contextlib.contextmanager
def every_cut(layout: Layout, recipe: Recipe, model: LocalModel, build: BuildRecord) -> Iterator[Cuts]:
    """Starts the reference for ``model`` with the settings of :func:`small`."""
    settings = small(recipe, model)
    with LocalReference(layout, settings, model, build) as reference:
        oracle = CachedOracle(ReferenceOracle(reference), range(1, model.layer_count))
        yield Cuts(layout, settings, model, build, oracle, tokenize(reference, PROMPTS))


def assert_no_bit_differs(compared: Compared, cuts: Sequence[int]) -> None:
    """Prints what was compared, and fails if a bit differs or less was compared than there is."""
    print(f"\n  cut {tuple(cuts)}: of {compared.logits.compared:,} logits {compared.logits.differing} differ, ", end="")
    print(f"of {compared.boundaries.compared:,} boundary values {compared.boundaries.differing}", end=" ")
    assert compared.logits.compared == compared.expected_logits
    assert compared.boundaries.compared == compared.expected_boundaries
    assert compared.identical
