"""Everything a route is made from, each part verified before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.provision import known_manifest, verified_model
from dgrctl.lanes.build import verified_build
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.architectures import require_splittable
from dgrctl.recipes.placement import LayerRange, check_model, resolve
from dgrctl.recipes.recipe import Recipe, find_recipe, load_recipe
from dgrctl.runtime.cgroups import warn_of_quota


@dataclass(frozen=True)
class Prepared:
    """A recipe with the model, the build and the layer ranges that it names; ``ranges`` in route order."""

    recipe: Recipe
    model: LocalModel
    build: BuildRecord
    ranges: Sequence[LayerRange]


def prepare(layout: Layout, recipe: str, storage: str | None = None) -> Prepared:
    """Reads a recipe, verifies what it needs, and warns where a processor quota is too small for it.

    Args:
        recipe: Its name or file.
        storage: Where models are kept, if not where they usually are.

    Raises:
        InputError: the recipe is malformed or contradicts its model.
        IntegrityError: the model or a program is not what was recorded.
        DgrError: the model was not pulled or the lane not built; the remedy is the command that does.
    """
    return prepare_recipe(layout, load_recipe(find_recipe(layout, recipe)), storage)


def prepare_recipe(layout: Layout, wanted: Recipe, storage: str | None = None) -> Prepared:
    """Like :func:`prepare`, of a recipe that was read already."""
    warn_of_quota(wanted.execution.threads)
    manifest = known_manifest(layout, wanted.model, storage)
    check_model(wanted, manifest)
    require_splittable(layout, wanted, manifest)
    model = verified_model(layout, wanted.model, storage)
    ranges = resolve(wanted, model)
    return Prepared(wanted, model, verified_build(layout, wanted.lane), ranges)
