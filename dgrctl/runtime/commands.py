"""Command lines of the two programs, from a recipe. What they mean is said by their ``--help``."""

from __future__ import annotations

import math
import os
from pathlib import Path

from dgrctl.artifacts.local import LocalModel
from dgrctl.files import storage_errors
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.recipes.recipe import Recipe
from dgrctl.statelock import longest_wait

LOCAL = "127.0.0.1:0"
# A worker waits this much longer for its turn than the dgrctl that watches it, which knows more to say.
_AFTER_SECONDS = 2


def worker_command(
    build: BuildRecord,
    model: LocalModel,
    recipe: Recipe,
    layers: LayerRange,
    *,
    listen: str = LOCAL,
    gate: Path | None = None,
    allow_probes: bool = False,
    any_architecture: bool = False,
) -> list[str]:
    """Starts dgr-worker for one range.

    Args:
        any_architecture: Serve what the roster does not allow, to find out whether it could.
        listen: host:port; port 0 picks a free one.
        gate: The file that workers which share processors lock during each decode; None where they share none.
    """
    command = [str(build.worker), *_shared(model, recipe), "--listen", listen]
    command += ["--layers", f"{layers.begin}:{layers.end}", "--wire", recipe.boundary.wire]
    if gate is not None:
        command += ["--compute-gate", str(gate), "--gate-seconds", str(math.ceil(longest_wait()) + _AFTER_SECONDS)]
    if allow_probes:
        command.append("--allow-probes")
    if any_architecture:
        command.append("--any-architecture")
    return command


def reference_command(build: BuildRecord, model: LocalModel, recipe: Recipe, *, threads: int | None = None) -> list[str]:
    """Starts dgr-reference, the whole model; ``threads`` where not the recipe's number for a stage."""
    command = [str(build.reference), *_shared(model, recipe), "--listen", LOCAL]
    if threads is not None:
        command[command.index("--threads") + 1] = str(threads)
    return command


def _shared(model: LocalModel, recipe: Recipe) -> list[str]:
    execution = recipe.execution
    options: dict[str, object] = {
        "--model": model.first_part,
        "--model-digest": model.set_digest,
        "--context": execution.context,
        "--sessions": execution.sessions,
        "--ubatch": execution.ubatch,
        "--threads": execution.threads,
        "--flash-attention": "on" if execution.flash_attention else "off",
        "--kv-type-k": execution.kv_type_k,
        "--kv-type-v": execution.kv_type_v,
    }
    return [word for name, value in options.items() for word in (name, str(value))] + ["--supervisor", str(os.getpid())]


def compute_gate(layout: Layout, recipe: Recipe, stages: int) -> Path | None:
    """The gate for ``stages`` workers of a recipe on this machine; None where each of their threads has a processor of its own.

    Threads that wait for each other while something else holds their processor wait long: two stages with two threads each on
    two processors fall to a tenth of their speed. One gate serves the whole machine, so that two routes take turns too.

    Raises:
        StorageError: its folder cannot be made.
    """
    processors = len(os.sched_getaffinity(0))
    if recipe.execution.prefill_window > 1 and stages * recipe.execution.threads <= processors:
        return None
    with storage_errors(layout.locks):
        layout.locks.mkdir(parents=True, exist_ok=True)
    return layout.locks / "compute.gate"
