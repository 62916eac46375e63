"""Parity of models that have token ids and no text: routes and references of fixture models, and their comparison."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from dgr.v1 import common_pb2

from dgrctl.artifacts.local import LocalModel
from dgrctl.certify.bits import Tally
from dgrctl.certify.parity import Oracle, PromptParity
from dgrctl.certify.parity_set import compare_set
from dgrctl.certify.plan import OutputMode, PromptPlan
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.recipes.recipe import Recipe
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute, Route

BOTH = tuple(OutputMode)


def token_prompt(length: int, *, vocabulary: int = 256, seed: int = 0) -> tuple[int, ...]:
    """``length`` token ids without a pattern; another seed gives others."""
    generator = np.random.Generator(np.random.PCG64((length, seed)))
    return tuple(int(token) for token in generator.integers(0, vocabulary, length))


def as_prompt(tokens: Sequence[int]) -> common_pb2.Prompt:
    """The ids as a route takes them."""
    return common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=tokens))


@dataclass(frozen=True)
class Rig:
    """Makes routes and references that differ in the model and the cuts, and run under one recipe's execution."""

    layout: Layout
    build: BuildRecord
    recipe: Recipe

    def executing(self, **changes: object) -> Rig:
        """The same under a changed execution; the fields are a recipe's."""
        execution = msgspec.structs.replace(self.recipe.execution, **changes)
        return Rig(self.layout, self.build, msgspec.structs.replace(self.recipe, execution=execution))

    @property
    def ubatch(self) -> int:
        return self.recipe.execution.ubatch

    def route(self, model: LocalModel, *cuts: int) -> LocalRoute:
        """Real workers that meet at ``cuts``; enter it to start them."""
        bounds = (0, *cuts, model.layer_count)
        ranges = [LayerRange(begin, end) for begin, end in itertools.pairwise(bounds)]
        return LocalRoute(self.layout, self.recipe, model, self.build, ranges, allow_probes=True)

    def reference(self, model: LocalModel) -> LocalReference:
        """The whole model in the unpatched upstream; enter it to start it."""
        return LocalReference(self.layout, self.recipe, model, self.build)

    def plan(self, tokens: tuple[int, ...], mode: OutputMode, *, decode_steps: int, stages: int) -> PromptPlan:
        """What ``tokens`` must make a route of ``stages`` do."""
        return PromptPlan(f"{len(tokens)}-tokens", mode, tokens, decode_steps, self.ubatch, stages)

    def compare(
        self,
        route: Route,
        oracle: Oracle,
        prompts: Sequence[tuple[int, ...]],
        folder: Path,
        *,
        decode_steps: int = 8,
        modes: Sequence[OutputMode] = BOTH,
    ) -> Found:
        """Runs every prompt in every mode on the route and holds each value against the whole model."""
        planned = [
            (as_prompt(tokens), self.plan(tokens, mode, decode_steps=decode_steps, stages=len(route.stages)))
            for tokens in prompts
            for mode in modes
        ]
        return Found(route, compare_set(route, oracle, planned, folder))


@dataclass
class Found:
    """What a comparison found, counted."""

    route: Route
    results: list[PromptParity]
    logits: Tally = field(default_factory=Tally)
    boundaries: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        for result in self.results:
            self.logits.merge(result.logits)
            for tally in result.boundaries.values():
                self.boundaries.merge(tally)

    def require_identical(self) -> None:
        """Not one bit differs, and as much was compared as the plans ask for."""
        head = self.route.stages[0].description
        cuts = len(self.route.stages) - 1
        plans = [result.plan for result in self.results]
        assert self.logits.compared == sum(plan.logits_rows for plan in plans) * head.vocabulary > 0
        assert self.boundaries.compared == sum(plan.positions for plan in plans) * cuts * head.streams * head.width
        assert self.logits.differing == 0
        assert self.boundaries.differing == 0
        assert all(result.identical for result in self.results)

    def __str__(self) -> str:
        return (
            f"of {self.logits.compared:,} logits {self.logits.differing} differ, "
            f"of {self.boundaries.compared:,} boundary values {self.boundaries.differing}"
        )
