"""DeepSeek V4 in small, cut everywhere: not one bit differs from the whole model in the unpatched upstream.

The prompts cross the ubatch, the window and a block of every compressor, so every kind of state is carried from one decode call
to the next on every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from token_parity import Rig, token_prompt

from dgrctl.artifacts.synth.deepseek4 import STREAMS, WINDOW
from dgrctl.certify.parity import CachedOracle
from dgrctl.certify.parity_set import ReferenceOracle

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.artifacts.local import LocalModel

Say = Callable[[object], None]

LAYERS = 8
UBATCH = 32
PROMPTS = (token_prompt(5), token_prompt(140))
MODELS: dict[str, dict[str, object]] = {
    "f32": {"weights": "f32"},
    "f16": {"weights": "f16"},
    "mixed": {"weights": "mixed"},
    "split": {"weights": "f16", "layers": 9, "parts": 4, "seed": 2},
    "vision-bias": {"weights": "f16", "layers": 5, "vision_bias": True},
}
CUTS = [(name, cut) for name, model in MODELS.items() for cut in range(1, int(str(model.get("layers", LAYERS))))]


@dataclass(frozen=True)
class Whole:
    """A model, and the whole model's answers at each of its cuts."""

    model: LocalModel
    oracle: CachedOracle


@pytest.fixture(scope="module")
def rig(fixture_rig: Rig) -> Rig:
    return fixture_rig.executing(ubatch=UBATCH, context=256)


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest, rig: Rig, fixture_models: FixtureModels) -> Iterator[Whole]:
    """One reference for all cuts of one model."""
    model = fixture_models.deepseek4(**MODELS[request.param])  # type: ignore[arg-type]
    with rig.reference(model) as reference:
        yield Whole(model, CachedOracle(ReferenceOracle(reference), range(1, model.layer_count)))


@pytest.mark.parametrize(("whole", "cut"), CUTS, indirect=["whole"])
def test_no_bit_differs(whole: Whole, cut: int, rig: Rig, tmp_path: Path, say: Say) -> None:
    assert len(PROMPTS[0]) < UBATCH == WINDOW < 128 < len(PROMPTS[1])
    with rig.route(whole.model, cut) as route:
        tail = route.stages[1].description
        assert (tail.adapter, tail.streams, tail.boundary_token_ids) == ("deepseek4/1", STREAMS, True)
        found = rig.compare(route, whole.oracle, PROMPTS, tmp_path)
    say(f"cut {cut}: {found}")
    found.require_identical()


@pytest.mark.parametrize("whole", ["f16", "mixed"], indirect=True)
def test_stages_of_one_layer_each(whole: Whole, rig: Rig, tmp_path: Path, say: Say) -> None:
    """A stage then lacks every cache but those of its own layer's kind: window alone, CSA with its indexer, or HCA."""
    with rig.route(whole.model, *range(1, LAYERS)) as route:
        found = rig.compare(route, whole.oracle, PROMPTS, tmp_path)
    say(f"{LAYERS} stages: {found}")
    found.require_identical()


def test_twelve_workers_on_the_real_number_of_layers(rig: Rig, fixture_models: FixtureModels, tmp_path: Path, say: Say) -> None:
    model = fixture_models.deepseek4(43, weights="f16")
    cuts = (3, 7, 10, 14, 18, 21, 25, 28, 32, 36, 39)
    with rig.reference(model) as reference, rig.route(model, *cuts) as route:
        assert len(route.stages) == 12
        found = rig.compare(route, ReferenceOracle(reference), (token_prompt(33), token_prompt(140)), tmp_path)
    say(f"12 stages of 43 layers: {found}")
    found.require_identical()
