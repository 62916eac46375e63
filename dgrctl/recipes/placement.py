"""Which stage owns which layers.

A stage's size is the bytes it holds: its layers, the head's extras (token embedding) on the first, the tail's (output norm and
head) on the last. The slowest stage paces a route and the largest decides which machines can take one, so a recipe that names
only a count gets the cut whose largest stage is smallest. Where each machine's memory is given, the cut is the one that leaves
the tightest machine the most room: :func:`place`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.manifest import ModelManifest
from dgrctl.errors import InputError
from dgrctl.recipes.memory import ALLOWANCE, Footprint, MemoryModel
from dgrctl.recipes.recipe import Execution, Recipe

# Bytes of a stage that owns the layers [begin, end).
StageBytes = Callable[[int, int], int]


@dataclass(frozen=True, order=True)
class LayerRange:
    """The layers [begin, end) of the whole model, in absolute indices."""

    begin: int
    end: int

    def __str__(self) -> str:
        return f"[{self.begin}, {self.end})"


def check_model(recipe: Recipe, manifest: ModelManifest) -> None:
    """Holds a recipe against its model's manifest, so that a bad one is refused before the model is pulled or hashed.

    Raises:
        InputError: names the recipe's file, the field and the remedy.
    """
    if recipe.model != manifest.id:
        raise _refusal(recipe, "model", f"it is for {recipe.model}, not for {manifest.id}", "use the recipe's own model")
    stages, ranges, layers = recipe.placement.stages, recipe.placement.ranges, manifest.layer_count
    if stages is not None and stages > layers:
        what = f"{stages} stages for the {layers} layers of {manifest.id}; each stage owns one at least"
        raise _refusal(recipe, "placement.stages", what, f"name at most {layers}")
    for index, (begin, end) in enumerate(ranges or ()):
        if end > layers:
            what = f"the range [{begin}, {end}) goes past the {layers} layers of {manifest.id}"
            raise _refusal(recipe, f"placement.ranges[{index}]", what, f"end it at {layers}")
    if ranges and ranges[-1][1] < layers:
        what = f"the layers [{ranges[-1][1]}, {layers}) of {manifest.id} belong to no stage"
        raise _refusal(recipe, f"placement.ranges[{len(ranges) - 1}]", what, f"end the last range at {layers}")


def resolve(recipe: Recipe, model: LocalModel) -> list[LayerRange]:
    """The range of each stage, in route order: the recipe's own, or the balanced ones for its count of stages.

    Raises:
        InputError: the recipe does not fit the model; names the recipe's file, the field and the remedy.
    """
    check_model(recipe, model.manifest)
    if recipe.execution.context > model.context_length:
        what = f"{recipe.execution.context} positions, and {recipe.model} was made for {model.context_length}"
        raise _refusal(recipe, "execution.context", what, f"name at most {model.context_length}")
    if recipe.placement.ranges is not None:
        return [LayerRange(begin, end) for begin, end in recipe.placement.ranges]
    if recipe.placement.stages is None:
        raise _refusal(recipe, "placement", "it names neither stages nor ranges", "load recipes with load_recipe")
    return balanced(model.layer_count, recipe.placement.stages, model.stage_bytes)


def balanced(layers: int, stages: int, stage_bytes: StageBytes) -> list[LayerRange]:
    """Cuts ``layers`` into ``stages`` contiguous, non-empty ranges.

    The largest stage is as small as it can be; among such cuts the sum of squared sizes is smallest, so that the rest is even,
    too; among those the first cut is the earliest, then the second, and so on. Exact.

    Args:
        stage_bytes: Bytes of the stage [begin, end): not negative, and no smaller for a range that holds another.
    """
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot make {stages} stages")
    sizes = {(begin, end): stage_bytes(begin, end) for begin in range(layers) for end in range(begin + 1, layers + 1)}
    candidates = sorted(set(sizes.values()))
    # Fewer stages than asked for are enough: cutting one of them further makes none larger.
    largest = candidates[bisect_left(candidates, True, key=lambda limit: _stages_needed(layers, sizes, limit) <= stages)]
    return _most_even(layers, sizes, [largest] * stages)


@dataclass(frozen=True)
class PlacedStage:
    """One stage on its machine. ``memory`` is the machine's, ``needed`` what the stage takes of it at most, in bytes."""

    layers: LayerRange
    footprint: Footprint
    memory: int

    @property
    def needed(self) -> int:
        return self.footprint.total + ALLOWANCE

    @property
    def free(self) -> int:
        """Negative where the stage does not fit."""
        return self.memory - self.needed


def place(model: MemoryModel, execution: Execution, memory: Sequence[int]) -> list[PlacedStage]:
    """One stage for each machine, in route order, so that the tightest machine is left the most room.

    Among such cuts the sum of squared sizes is smallest; among those the cuts are the earliest. Exact.

    Args:
        memory: Bytes that each machine gives to its stage, in route order.

    Raises:
        InputError: more machines than layers, or too little memory: names the machine, and how much is missing.
    """
    if not 1 <= len(memory) <= model.layer_count:
        raise InputError(
            f"{len(memory)} machines for the {model.layer_count} layers of {model.model_id}; each owns one layer at least",
            where="--memory",
            remedy=f"name 1 to {model.layer_count} sizes",
        )
    layers = range(model.layer_count)
    needs = {
        (begin, end): model.footprint(begin, end, execution).total + ALLOWANCE
        for begin in layers
        for end in range(begin + 1, model.layer_count + 1)
    }
    shortages = sorted({need - size for need in needs.values() for size in set(memory)})
    least = shortages[bisect_left(shortages, True, key=lambda excess: _fits(needs, [size + excess for size in memory]))]
    ranges = _most_even(model.layer_count, needs, [size + least for size in memory])
    placed = [
        PlacedStage(layers, model.footprint(layers.begin, layers.end, execution), size)
        for layers, size in zip(ranges, memory, strict=True)
    ]
    if least > 0:
        raise _too_small(model, placed)
    return placed


def _fits(needs: dict[tuple[int, int], int], limits: Sequence[int]) -> bool:
    """Whether there are stages of at most ``limits`` bytes, none empty, that hold all layers."""
    layers = max(end for _, end in needs)
    ends = {0}
    for limit in limits:
        # Not only the farthest: a small machine may hold the layer that comes early, and not the one after it.
        ends = {end for begin in ends for end in range(begin + 1, layers + 1) if needs[begin, end] <= limit}
    return layers in ends


def _too_small(model: MemoryModel, placed: Sequence[PlacedStage]) -> InputError:
    tightest = min(range(len(placed)), key=lambda index: placed[index].free)
    lines = [
        f"machine {index}: layers {stage.layers} take {stage.needed:,} bytes of {stage.memory:,}"
        + (f", {-stage.free:,} too many" if stage.free < 0 else "")
        for index, stage in enumerate(placed)
    ]
    return InputError(
        f"{model.model_id} does not fit: however it is cut, a machine lacks at least {-placed[tightest].free:,} bytes",
        where=f"--memory, machine {tightest}",
        detail="\n".join(lines),
        remedy="give that machine more, add machines, or lower --context, --sessions or --ubatch",
    )


def _stages_needed(layers: int, sizes: dict[tuple[int, int], int], limit: int) -> int:
    """How many stages of at most ``limit`` bytes hold all layers; more than ``layers`` if none do."""
    needed = begin = 0
    while begin < layers:
        end = begin
        while end < layers and sizes[begin, end + 1] <= limit:
            end += 1
        if end == begin:
            return layers + 1
        needed, begin = needed + 1, end
    return needed


def _most_even(layers: int, sizes: dict[tuple[int, int], int], limits: Sequence[int]) -> list[LayerRange]:
    """One range for each of ``limits``, none larger than its own; there must be a way."""
    # best[begin]: for the layers from ``begin`` on in the stages counted so far, (sum of squares, end of the first of them).
    best: dict[int, tuple[int, int]] = {layers: (0, layers)}
    choices: list[dict[int, tuple[int, int]]] = []
    for limit in reversed(limits):
        following, best = best, {}
        for begin in range(layers):
            for end in range(begin + 1, layers + 1):
                size = sizes[begin, end]
                if size > limit:
                    break
                if end in following:
                    candidate = (size * size + following[end][0], end)
                    best[begin] = min(best.get(begin, candidate), candidate)
        choices.append(best)
    ranges: list[LayerRange] = []
    begin = 0
    for chosen in reversed(choices):
        end = chosen[begin][1]
        ranges.append(LayerRange(begin, end))
        begin = end
    return ranges


def _refusal(recipe: Recipe, field: str, what: str, remedy: str) -> InputError:
    # A recipe has its file's name, so the file is named although only the recipe is at hand.
    return InputError(f"this recipe does not fit its model: {what}", where=f"{recipe.name}.toml: {field}", remedy=remedy)
