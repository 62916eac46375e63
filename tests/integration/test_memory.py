"""What stages really take, against what is predicted: after loading, at the peak of loading, and after computing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from dgr.v1 import common_pb2
from residency import Residency, residency

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.layout import Layout
from dgrctl.recipes.memory import ALLOWANCE, MIB, MemoryModel
from dgrctl.recipes.placement import LayerRange, balanced
from dgrctl.runtime.commands import worker_command
from dgrctl.runtime.route import LocalRoute

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe


PAGE = os.sysconf("SC_PAGESIZE")
Subject = tuple["LocalModel", list[LayerRange], "Recipe"]


@pytest.fixture(params=["smollm2", "gemma3", "gemma3-little-state", "deepseek4"])
def subject(
    request: pytest.FixtureRequest,
    verified_model: LocalModel,
    gemma_model: LocalModel,
    fixture_models: FixtureModels,
    recipe: Recipe,
) -> Subject:
    """A model, its stages, and how they execute; with little state, what loading takes at its peak cannot hide behind it."""
    subjects = {"smollm2": (verified_model, 3), "gemma3": (gemma_model, 3), "deepseek4": (fixture_models.deepseek4(43), 12)}
    name, _, little = request.param.partition("-")
    model, stages = subjects[name]
    execution = msgspec.structs.replace(recipe.execution, context=256, sessions=1, ubatch=32) if little else recipe.execution
    settings = msgspec.structs.replace(recipe, model=model.manifest.id, execution=execution)
    return model, balanced(model.layer_count, stages, model.stage_bytes), settings


def test_stages_take_what_is_predicted(
    layout: Layout, verified_build: BuildRecord, subject: Subject, capsys: pytest.CaptureFixture[str]
) -> None:
    model, ranges, settings = subject
    tensors = sum(len(read_header(part).tensors) for part in model.parts)
    predicted = [MemoryModel.of(model).footprint(layers.begin, layers.end, settings.execution) for layers in ranges]
    with LocalRoute(layout, settings, model, verified_build, ranges) as route:
        pids = [stage.description.pid for stage in route.stages]
        loaded = [residency(pid, model.parts) for pid in pids]
        compute(route, settings)
        computed = [residency(pid, model.parts) for pid in pids]
    with capsys.disabled():
        print(f"\n  {model.manifest.id}, MiB: predicted; beyond it after loading (peak) and computing (peak); program's pages")
        for layers, footprint, before, after in zip(ranges, predicted, loaded, computed, strict=True):
            measured = f"{beyond(before, footprint.total)} {beyond(after, footprint.total)} {after.program / MIB:6.1f}"
            print(f"  {layers!s:>9} {footprint.total / MIB:7.1f} {measured}")
    for layers, footprint, before, after in zip(ranges, predicted, loaded, computed, strict=True):
        for found in (before.total, before.peak, after.total, after.peak):
            assert found <= footprint.total + ALLOWANCE, f"layers {layers} take {found:,} bytes, {footprint} is predicted"
        # Around a page that is read the kernel maps those beside it, if they can be read: here, the rest of each tensor's pages.
        assert after.reach <= footprint.weights + 2 * PAGE * tensors, f"layers {layers} reach {after.reach:,} bytes of the file"
        # The prediction is no blank cheque: the weights that every row passes, and the state, are there.
        if layers.begin > 0:
            assert after.total >= footprint.weights + footprint.state


def test_a_program_beside_its_model_keeps_its_own_pages(
    tmp_path: Path, verified_build: BuildRecord, verified_model: LocalModel, recipe: Recipe
) -> None:
    """What is given back, or put out of reach, of the files in the model's folder is the model."""
    program, model = tmp_path / "dgr-worker", tmp_path / verified_model.first_part.name
    command = worker_command(verified_build, verified_model, recipe, LayerRange(6, 25), listen="127.0.0.1:0")
    for file, copied in ((verified_build.worker, program), (verified_model.first_part, model)):
        shutil.copy(file, copied)
        command[command.index(str(file))] = str(copied)
    del command[-2:]  # no supervisor
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        event = process.stdout.readline()
        process.terminate()
        _, log = process.communicate()
    assert '"event":"ready"' in event, log
    assert process.returncode == 0, log


def compute(route: LocalRoute, settings: Recipe) -> None:
    """A prompt of two ubatches and some tokens after it."""
    tokens = [1 + 37 * index % 250 for index in range(2 * settings.execution.ubatch + 5)]
    prompt = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=tokens))
    for _ in route.generate(prompt, max_tokens=8, ignore_end_of_generation=True):
        pass


def beyond(found: Residency, predicted: int) -> str:
    return f"{(found.total - predicted) / MIB:7.1f} ({(found.peak - predicted) / MIB:6.1f})"
