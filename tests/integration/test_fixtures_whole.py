"""Fixture models in the unpatched upstream: each loads, and computes finite logits past every border that its state has."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from dgr.v1 import common_pb2, reference_pb2
from fixture_models import FixtureModels

from dgrctl.artifacts.synth.deepseek4 import VOCABULARY, WINDOW, Weights
from dgrctl.layout import Layout
from dgrctl.runtime.reference import LocalReference

if TYPE_CHECKING:
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe

UBATCH = 64
POSITIONS = 300  # past two blocks of the 128-fold compression


def calls() -> list[common_pb2.DecodeCall]:
    """A prompt in chunks of one ubatch, all rows wanted."""
    tokens = [byte % VOCABULARY for byte in hashlib.shake_256(b"prompt").digest(POSITIONS)]
    made = []
    for begin in range(0, POSITIONS, UBATCH):
        rows = range(begin, min(begin + UBATCH, POSITIONS))
        sequence = common_pb2.SequenceRows(
            slot=0, token_ids=[tokens[row] for row in rows], positions=rows, outputs=common_pb2.OUTPUT_ROWS_ALL
        )
        made.append(common_pb2.DecodeCall(phase=common_pb2.PHASE_PREFILL, sequences=[sequence]))
    return made


@pytest.mark.parametrize(
    ("layers", "weights", "parts"),
    [(8, "f32", 1), (8, "f16", 1), (10, "mixed", 4), (43, "f16", 1)],
)
def test_the_whole_model_computes(
    layout: Layout,
    verified_build: BuildRecord,
    recipe: Recipe,
    fixture_models: FixtureModels,
    *,
    layers: int,
    weights: Weights,
    parts: int,
) -> None:
    model = fixture_models.deepseek4(layers, weights=weights, parts=parts, vision_bias=weights == "mixed")
    execution = msgspec.structs.replace(recipe.execution, context=512, sessions=1, ubatch=UBATCH, threads=1)
    settings = msgspec.structs.replace(recipe, model=model.manifest.id, execution=execution)
    rows = 0
    chosen: set[int] = set()
    assert WINDOW < UBATCH < POSITIONS
    with LocalReference(layout, settings, model, verified_build) as reference, reference.explained():
        assert reference.client.describe().layer_count == layers
        for answer in reference.client.replay(reference_pb2.ReplayRequest(calls=calls())):
            logits = np.frombuffer(answer.logits.values, np.float32).reshape(answer.logits.rows, VOCABULARY)
            assert np.isfinite(logits).all()
            assert 0.5 < logits.std() < 2.0
            chosen |= set(logits.argmax(axis=1).tolist())
            rows += len(logits)
    assert rows == POSITIONS
    # Not the same token everywhere: the layers have something to say.
    assert len(chosen) > 50
