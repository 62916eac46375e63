"""Fixture models for tests, each made once per test session."""

from __future__ import annotations

from pathlib import Path

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.synth.deepseek4 import DeepSeek4, Weights, default_embedding
from dgrctl.artifacts.synth.make import synthesise
from dgrctl.layout import Layout


class FixtureModels:
    """Makes and remembers fixture models in ``folder``."""

    def __init__(self, layout: Layout, folder: Path) -> None:
        self._layout = layout
        self._folder = folder
        self._made: dict[tuple[DeepSeek4, int], LocalModel] = {}

    def deepseek4(
        self,
        layers: int = 8,
        *,
        seed: int = 1,
        weights: Weights = "f16",
        embedding: int | None = None,
        vision_bias: bool = False,
        parts: int = 1,
    ) -> LocalModel:
        """DeepSeek V4 in small; the arguments are those of ``dgrctl model synth deepseek4``."""
        width = default_embedding(weights) if embedding is None else embedding
        fixture = DeepSeek4(layers=layers, seed=seed, weights=weights, embedding=width, vision_bias=vision_bias)
        key = (fixture, parts)
        if key not in self._made:
            output = self._folder / f"{fixture.name}-p{parts}"
            self._made[key] = synthesise(self._layout, fixture, parts=parts, output=output).model
        return self._made[key]
