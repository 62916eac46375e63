"""What a recipe resolves to on this machine: its stages with their layers and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.provision import Storage, known_manifest, verified_model
from dgrctl.layout import Layout
from dgrctl.recipes.architectures import require_splittable
from dgrctl.recipes.placement import LayerRange, check_model, resolve
from dgrctl.recipes.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class ResolvedStage:
    """One stage: its part in the route ("head", "middle", "tail", or "whole" if it is alone), its layers and its bytes."""

    role: str
    layers: LayerRange
    bytes: int


@dataclass(frozen=True)
class Resolved:
    """A recipe that can be used, with its model verified and its stages in route order."""

    recipe: Recipe
    model: LocalModel
    stages: tuple[ResolvedStage, ...]


def resolved(layout: Layout, path: Path, storage: Storage = None) -> Resolved:
    """Reads and resolves the recipe ``path``; whatever can be refused without the model is refused before it is hashed.

    Raises:
        InputError: the recipe is malformed, contradicts itself or does not fit its model.
        FetchError, IntegrityError, StorageError: see :func:`dgrctl.artifacts.provision.verified_model`.
    """
    recipe = load_recipe(path)
    manifest = known_manifest(layout, recipe.model, storage)
    check_model(recipe, manifest)
    require_splittable(layout, recipe, manifest)
    model = verified_model(layout, recipe.model, storage)
    ranges = resolve(recipe, model)
    stages = tuple(
        ResolvedStage(_role(index, len(ranges)), layers, model.stage_bytes(layers.begin, layers.end))
        for index, layers in enumerate(ranges)
    )
    return Resolved(recipe, model, stages)


def _role(index: int, stages: int) -> str:
    if stages == 1:
        return "whole"
    return "head" if index == 0 else "tail" if index == stages - 1 else "middle"
