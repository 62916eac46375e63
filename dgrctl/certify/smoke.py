"""A first look at a stack on another upstream: does it build, and does the split compute there what that upstream computes?

Two short prompts, on both sides of a ubatch, in every output mode, compared bit by bit. No certification: nothing is signed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

import msgspec

from dgrctl.artifacts.storage import storage_root
from dgrctl.certify.bits import Tally
from dgrctl.certify.identity import check_reference, check_stage
from dgrctl.certify.parity import PromptParity
from dgrctl.certify.parity_set import ReferenceOracle, compare_set, plans, tokenize
from dgrctl.certify.plan import OutputMode
from dgrctl.certify.prompts import Prompt, PromptSet, require_crossing
from dgrctl.console import progress
from dgrctl.files import storage_errors
from dgrctl.lanes.build import build
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import find_recipe, load_recipe
from dgrctl.runtime.prepare import Prepared, prepare
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute
from dgrctl.upstream.bump_report import Proof

RECIPE = "smollm2-135m.cpu-2stage"

_UBATCH = 16
_DECODE_STEPS = 8
_PROMPTS = PromptSet(
    schema=1,
    name="smoke",
    prompts=[
        Prompt(id="short", language="en", text="The three primary colours are"),
        Prompt(
            id="crossing",
            language="en",
            text="The river was high that morning, and the bridge seemed to end in the mist. Whoever wanted to cross it stopped.",
        ),
    ],
)
# What a build and a route need of a checkout beside its upstream.
_COPIED = ("worker", "proto", "recipes", "manifests/models")


def prover(layout: Layout, *, recipe: str | None = None, storage: str | None = None) -> Callable[[Layout], Proof]:
    """What builds a candidate checkout and compares it, with this checkout's own sources, compiler cache and models.

    Args:
        recipe: Its name or file; None for :data:`RECIPE`.
    """

    def prove(candidate: Layout) -> Proof:
        # Found here: a relative path would not lead to it from the candidate.
        path = find_recipe(layout, recipe or RECIPE)
        _complete(candidate, layout)
        build(candidate, load_recipe(path).lane)
        prepared = prepare(candidate, str(path), str(storage_root(layout, storage)))
        return verdict(prepared, compare(candidate, prepared))

    return prove


def verdict(prepared: Prepared, results: Sequence[PromptParity]) -> Proof:
    """Passed if no bit differs anywhere."""
    logits, boundaries = Tally(), Tally()
    for result in results:
        logits.merge(result.logits)
        for tally in result.boundaries.values():
            boundaries.merge(tally)
    return Proof(
        passed=all(result.identical for result in results),
        text=f"built for {prepared.build.isa}; {prepared.recipe.name} against that upstream's own whole model: "
        f"of {logits.compared:,} logits {logits.differing:,} differ, "
        f"of {boundaries.compared:,} boundary values {boundaries.differing:,}",
    )


def _complete(candidate: Layout, layout: Layout) -> None:
    with storage_errors(candidate.root):
        for name in _COPIED:
            shutil.rmtree(candidate.root / name, ignore_errors=True)
            shutil.copytree(layout.root / name, candidate.root / name)
        layout.ccache.mkdir(parents=True, exist_ok=True)
        if not candidate.ccache.exists():
            candidate.ccache.symlink_to(layout.ccache)


def compare(layout: Layout, prepared: Prepared) -> list[PromptParity]:
    """Runs a recipe's route and its reference in ``layout``, with a smaller ubatch and context.

    Raises:
        CertificationVoid, StageError: there is nothing to judge.
    """
    execution = msgspec.structs.replace(prepared.recipe.execution, ubatch=_UBATCH, context=256, sessions=1)
    recipe = msgspec.structs.replace(prepared.recipe, execution=execution)
    model, record, ranges = prepared.model, prepared.build, prepared.ranges
    with (
        progress("Comparing with that upstream's own reference"),
        LocalReference(layout, recipe, model, record) as reference,
        # The roster is of the stack that is, not of the one that is tried.
        LocalRoute(layout, recipe, model, record, ranges, allow_probes=True, any_architecture=True) as route,
    ):
        stage = route.stages[0].description
        adapted = Prepared(recipe, model, record, ranges)
        check_stage(adapted, stage)
        check_reference(adapted, reference.client.describe(), stage)
        tokens = tokenize(reference, _PROMPTS)
        require_crossing(_PROMPTS, {name: len(ids) for name, ids in tokens.items()}, _UBATCH)
        planned = plans(
            _PROMPTS,
            tokens,
            modes=list(OutputMode),
            decode_steps=_DECODE_STEPS,
            ubatch=_UBATCH,
            stage_count=len(ranges),
        )
        return compare_set(route, ReferenceOracle(reference), planned, route.folder)
