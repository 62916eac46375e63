"""Recipes: which model, on which lane, cut how, run how. One TOML file each, described in docs/models-and-recipes.md.

A recipe is read in full before anything starts. What it says about itself is checked here; what it says about its model is
checked by :func:`dgrctl.recipes.placement.resolve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgrctl.artifacts.manifest import ModelId
from dgrctl.canonical import canonical_sha256
from dgrctl.documents import digested_toml
from dgrctl.errors import InputError
from dgrctl.lanes.device import LANES
from dgrctl.layout import Layout
from dgrctl.nearest import suggest
from dgrctl.recipes.offered import KV_TYPES, REFUSED_WIRES, WIRES

_NAME = r"^[a-z0-9][a-z0-9._-]*$(?!\n)"
_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
_MAX_THREADS = 512  # GGML_MAX_N_THREADS
_MAX_SESSIONS = 256  # LLAMA_MAX_SEQ: each session is one sequence of the engine
# The worker's own bounds (worker/support/options.cpp).
_MAX_CONTEXT = 2**24
_MAX_UBATCH = 2**16
_MAX_POSITIONS = 2**30

Layer = Annotated[int, msgspec.Meta(ge=0, le=_MAX_LAYERS)]
Problem = tuple[str, str, str]  # field, what, remedy


class Placement(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """How the layers are cut: a count (balanced by bytes), explicit half-open ranges, or both if they agree."""

    stages: Annotated[int, msgspec.Meta(ge=1, le=_MAX_LAYERS)] | None = None
    ranges: tuple[tuple[Layer, Layer], ...] | None = None


class Boundary(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What crosses between stages. ``wire`` is the residual's type on the way: "f32" or "bf16"."""

    wire: str


class Execution(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How each stage runs."""

    threads: Annotated[int, msgspec.Meta(ge=1, le=_MAX_THREADS, description="per stage")]
    context: Annotated[int, msgspec.Meta(ge=1, le=_MAX_CONTEXT, description="positions per session")]
    sessions: Annotated[int, msgspec.Meta(ge=1, le=_MAX_SESSIONS, description="at once, per stage")]
    ubatch: Annotated[int, msgspec.Meta(ge=1, le=_MAX_UBATCH, description="rows per decode call")]
    flash_attention: bool
    kv_type_k: str
    kv_type_v: str
    prefill_window: Annotated[int, msgspec.Meta(ge=1, le=64, description="prefill chunks under way at once")]


class Recipe(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One way to run one model on one lane."""

    schema: Literal[1]
    name: Annotated[str, msgspec.Meta(pattern=_NAME, max_length=100, description="the file's stem")]
    model: ModelId
    lane: str
    placement: Placement
    boundary: Boundary
    execution: Execution

    def digest(self) -> str:
        """SHA-256 (hex) over the RFC 8785 form of the recipe's fields. Layout and comments of the file do not count."""
        return canonical_sha256(msgspec.to_builtins(self))


def find_recipe(layout: Layout, named: str) -> Path:
    """The file that ``--recipe`` means: a path, or the name of a recipe under ``recipes/``.

    Raises:
        InputError: a name that no recipe has.
    """
    if "/" in named or named.endswith(".toml"):
        return Path(named)
    known = sorted(path.stem for path in layout.recipes.glob("*.toml"))
    if named not in known:
        raise InputError(
            f"unknown recipe {named!r}",
            where=str(layout.recipes),
            remedy=suggest(named, known, f"name one of these recipes ({', '.join(known) or 'none'}), or a file"),
        )
    return layout.recipes / f"{named}.toml"


def load_recipe(path: Path) -> Recipe:
    """Reads the recipe ``path`` and checks everything that can be known without its model.

    Raises:
        InputError: malformed or contradicting itself; names file, field and remedy.
    """
    return digested_recipe(path)[0]


def digested_recipe(path: Path) -> tuple[Recipe, str]:
    """Like :func:`load_recipe`, with the SHA-256 of the very bytes that were parsed."""
    recipe, sha256 = digested_toml(path, Recipe, what="recipe")
    for field, what, remedy in _problems(recipe, path):
        raise InputError(f"this recipe cannot be used: {what}", where=f"{path}: {field}", remedy=remedy)
    return recipe, sha256


def check_execution(execution: Execution, where: str) -> None:
    """Holds execution settings that come from elsewhere than a recipe to a recipe's rules.

    Raises:
        InputError: names the field.
    """
    for field, what, remedy in _execution_problems(execution):
        raise InputError(f"these settings cannot be used: {what}", where=f"{where}: {field}", remedy=remedy)


def _problems(recipe: Recipe, path: Path) -> Iterator[Problem]:
    if recipe.name != path.stem:
        yield "name", f"it is called {recipe.name!r} in a file called {path.name!r}", "make the two equal"
    if recipe.lane not in LANES:
        yield "lane", f"there is no lane {recipe.lane!r}", suggest(recipe.lane, LANES, f"name one of {', '.join(LANES)}")
    wire = recipe.boundary.wire
    if wire not in WIRES:
        reason = REFUSED_WIRES.get(wire, "no worker speaks it")
        yield "boundary.wire", f"the wire {wire!r} is not offered: {reason}", f"name one of {', '.join(WIRES)}"
    yield from _placement_problems(recipe.placement)
    yield from _execution_problems(recipe.execution)


def _placement_problems(placement: Placement) -> Iterator[Problem]:
    ranges = placement.ranges
    if ranges is None:
        if placement.stages is None:
            yield "placement", "it names neither stages nor ranges", "add stages = N, or ranges = [[0, …], …]"
        return
    if not ranges:
        yield "placement.ranges", "there is no range", "name at least one, or give stages alone"
    expected = 0
    for index, (begin, end) in enumerate(ranges):
        field = f"placement.ranges[{index}]"
        if begin >= end:
            yield field, f"the range [{begin}, {end}) holds no layer", "ranges are half-open: begin < end"
        if index == 0 and begin != 0:
            yield field, f"the first range begins at layer {begin}", "begin at layer 0: the head owns it"
        elif begin > expected:
            yield field, f"the layers [{expected}, {begin}) belong to no stage", f"begin this range at {expected}"
        elif begin < expected:
            yield field, f"layer {begin} belongs to the stage before as well", f"begin this range at {expected}"
        expected = end
    if placement.stages is not None and placement.stages != len(ranges):
        what = f"it names {placement.stages} stages and {len(ranges)} ranges"
        yield "placement.stages", what, "make the two agree, or leave one out"


def _execution_problems(execution: Execution) -> Iterator[Problem]:
    if execution.ubatch > execution.context:
        what = f"a ubatch of {execution.ubatch} rows is larger than the context of {execution.context} positions"
        yield "execution.ubatch", what, f"make it at most {execution.context}"
    if execution.context * execution.sessions > _MAX_POSITIONS:
        what = f"{execution.sessions} sessions of {execution.context} positions are more than a worker takes"
        yield "execution.context", what, f"keep context x sessions at {_MAX_POSITIONS:,} or less"
    for field, kind in (("kv_type_k", execution.kv_type_k), ("kv_type_v", execution.kv_type_v)):
        if kind not in KV_TYPES:
            yield f"execution.{field}", f"there is no cache type {kind!r}", f"name one of {', '.join(KV_TYPES)}"
    if execution.kv_type_v == "q8_0" and not execution.flash_attention:
        what = "a quantised V cache needs flash attention"
        yield "execution.kv_type_v", what, "set flash_attention = true, or kv_type_v to f16 or f32"
