"""Architectures by real workers: a dozen that stand for all kinds, run again at every cut; and what the worker refuses.

``make certify-archs`` runs all of them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from flocks import can_lock

from dgrctl.artifacts.synthesised import local_model
from dgrctl.certify.architectures import lattice, run
from dgrctl.certify.architectures.lattice import RouteOutcome
from dgrctl.certify.architectures.synthesis import synthesise
from dgrctl.certify.architectures.upstream_test import upstream_test
from dgrctl.errors import CertificationVoid, InputError
from dgrctl.lanes.build import build_extra
from dgrctl.layout import Layout
from dgrctl.recipes.architectures import load_roster
from dgrctl.recipes.placement import LayerRange
from dgrctl.recipes.recipe import Boundary, Recipe
from dgrctl.runtime.commands import worker_command
from dgrctl.runtime.process import ServedProcess, await_ready

if TYPE_CHECKING:
    from dgrctl.lanes.record import BuildRecord

# One of each kind of state, residual, position and feed-forward network that the pin knows.
DOZEN = (
    "bloom",  # ALiBi, a norm after the embedding
    "falcon-h1",  # attention and recurrent state in every layer
    "gemma3",  # sliding windows, scaled embedding
    "glm-dsa",  # latent attention with an indexer
    "gpt2",  # learned positions
    "gpt-oss",  # attention sinks, experts
    "kimi-linear",  # linear attention beside latent attention
    "lfm2moe",  # convolutions, experts
    "mamba2",  # recurrent state alone
    "minimax-01",  # a factor that depends on the number of layers
    "qwen2vl",  # positions with sections, token ids for every stage
    "qwen4exp",  # several residual streams
)


@pytest.fixture(scope="module")
def generators(layout: Layout, verified_build: BuildRecord) -> list[Path]:
    """Upstream's generators of small models."""
    return build_extra(layout, run.LANE, "reference", run.GENERATORS, title="Building upstream's generator of small models")


@pytest.mark.parametrize("name", DOZEN)
def test_the_roster_is_what_a_run_shows(layout: Layout, verified_build: BuildRecord, name: str) -> None:
    rows = {row.name: row for row in load_roster(layout).architectures}
    assert run.check(layout, [name]) == [rows[name]]
    assert rows[name].status == "certified"
    assert rows[name].cuts > 0
    assert rows[name].logits > 0


def test_nobody_builds_or_certifies_meanwhile(
    layout: Layout, verified_build: BuildRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = lattice.check_model
    free: list[str] = []

    def watched(layout: Layout, build: BuildRecord, path: Path) -> list[RouteOutcome]:
        free.extend(name for name in ("certify", "build-cpu") if can_lock(layout.locks / f"{name}.lock"))
        return exact(layout, build, path)

    monkeypatch.setattr(run, "check_model", watched)
    (row,) = run.check(layout, ["gpt2"])
    assert row.status == "certified"
    assert free == []


def test_numbers_that_differ_are_seen(
    layout: Layout, verified_build: BuildRecord, generators: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = lattice.recipe

    def rounded(*, flash_attention: bool) -> Recipe:
        return msgspec.structs.replace(exact(flash_attention=flash_attention), boundary=Boundary(wire="bf16"))

    monkeypatch.setattr(lattice, "recipe", rounded)
    (row,) = run.check(layout, ["qwen3"])
    assert row.status == "unsupported"
    assert "logits differ" in row.reason


def test_the_worker_refuses_what_the_roster_does_not_allow(
    layout: Layout, verified_build: BuildRecord, generators: list[Path], tmp_path: Path
) -> None:
    (model,) = synthesise(layout, generators, "talkie").models
    command = worker_command(verified_build, local_model(model), lattice.recipe(flash_attention=True), LayerRange(0, 1))
    process = ServedProcess.spawn("the stage", command, log=tmp_path / "log")
    try:
        with pytest.raises(InputError, match="the architecture 'talkie' cannot be split: it is unsupported: every layer adds"):
            await_ready([process], 60.0)
    finally:
        process.stop(3.0)


def test_an_unproven_architecture_is_served_to_probes_alone(verified_build: BuildRecord) -> None:
    command = [str(verified_build.worker), "--model", "/nowhere.gguf", "--layers", "0:1", "--any-architecture"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "it needs --allow_probes" in done.stdout


def test_an_unknown_name_is_refused(layout: Layout, verified_build: BuildRecord) -> None:
    with pytest.raises(InputError, match="knows no architecture 'lama'"):
        run.check(layout, ["lama"])


def test_upstreams_own_test_passes_on_the_patched_tree(layout: Layout, verified_build: BuildRecord) -> None:
    kinds = ["llama", "qwen3moe", "gemma3", "mamba2", "deepseek2", "deepseek4", "minicpm3", "ernie4_5", "smallthinker"]
    assert upstream_test(layout, run.LANE, kinds) == "Summary: all 10 test(s) passed"


def test_a_test_of_nothing_is_no_success(layout: Layout, verified_build: BuildRecord) -> None:
    with pytest.raises(CertificationVoid, match="exit code 0, but it printed no result for lama"):
        upstream_test(layout, run.LANE, ["lama"])
