"""What stages really take, against what is predicted: after loading, at the peak of loading, and after computing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from dgr.v1 import common_pb2
from residency import Residency, residency

from dgrctl.layout import Layout
from dgrctl.recipes.memory import ALLOWANCE, MIB, MemoryModel
from dgrctl.recipes.placement import LayerRange, balanced
from dgrctl.runtime.route import LocalRoute

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe


Subject = tuple["LocalModel", list[LayerRange]]

# Measured: layers [6, 12) take 16.5 MiB beyond the prediction, [1, 17) 18.4. Part of it are pages of weights that llama.cpp
# copies into another order when it loads (Q4_K): the kernel maps the originals again, around pages that are used.
GEMMA = pytest.mark.xfail(strict=False, reason="a middle stage of Gemma goes 0.5 to 2.4 MiB past the bound")


@pytest.fixture(params=["smollm2", pytest.param("gemma3", marks=GEMMA), "deepseek4"])
def subject(
    request: pytest.FixtureRequest, verified_model: LocalModel, gemma_model: LocalModel, fixture_models: FixtureModels
) -> Subject:
    """A model and its stages."""
    if request.param == "smollm2":
        return verified_model, balanced(30, 3, verified_model.stage_bytes)
    if request.param == "deepseek4":
        model = fixture_models.deepseek4(43)
        return model, balanced(43, 12, model.stage_bytes)
    # Cut by bytes, the ends would own a layer each: the embedding is most of the model, and both hold it.
    return gemma_model, [LayerRange(begin, end) for begin, end in pairwise((0, 6, 12, 18))]


def test_stages_take_what_is_predicted(
    layout: Layout, verified_build: BuildRecord, recipe: Recipe, subject: Subject, capsys: pytest.CaptureFixture[str]
) -> None:
    model, ranges = subject
    settings = msgspec.structs.replace(recipe, model=model.manifest.id)
    predicted = [MemoryModel.of(model).footprint(layers.begin, layers.end, settings.execution) for layers in ranges]
    with LocalRoute(layout, settings, model, verified_build, ranges) as route:
        pids = [stage.description.pid for stage in route.stages]
        loaded = [residency(pid, model.parts) for pid in pids]
        compute(route, settings)
        computed = [residency(pid, model.parts) for pid in pids]
    with capsys.disabled():
        print(f"\n  {model.manifest.id}, MiB: predicted; beyond it after loading (peak) and computing (peak); program, shared")
        for layers, footprint, before, after in zip(ranges, predicted, loaded, computed, strict=True):
            measured = f"{beyond(before, footprint.total)} {beyond(after, footprint.total)} {after.program / MIB:6.1f}"
            print(f"  {layers!s:>9} {footprint.total / MIB:7.1f} {measured}")
    for layers, footprint, before, after in zip(ranges, predicted, loaded, computed, strict=True):
        for found in (before.stage, before.stage_peak, after.stage, after.stage_peak):
            assert found <= footprint.total + ALLOWANCE, f"layers {layers} take {found:,} bytes, {footprint} is predicted"
        # The prediction is no blank cheque: the weights that every row passes, and the state, are there.
        if layers.begin > 0:
            assert after.stage >= footprint.weights + footprint.state


def compute(route: LocalRoute, settings: Recipe) -> None:
    """A prompt of two ubatches and some tokens after it."""
    tokens = [1 + 37 * index % 250 for index in range(2 * settings.execution.ubatch + 5)]
    prompt = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=tokens))
    for _ in route.generate(prompt, max_tokens=8, ignore_end_of_generation=True):
        pass


def beyond(found: Residency, predicted: int) -> str:
    return f"{(found.stage - predicted) / MIB:7.1f} ({(found.stage_peak - predicted) / MIB:6.1f})"
