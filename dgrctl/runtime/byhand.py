"""One worker in the foreground, for routes across machines and for trying things out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.address import check_can_listen, parse_address
from dgrctl.runtime.commands import compute_gate, worker_command
from dgrctl.runtime.gate import GateWatch
from dgrctl.runtime.prepare import Prepared, prepare
from dgrctl.runtime.process import ServedProcess, await_ready
from dgrctl.runtime.route import GRACE_SECONDS, READY_SECONDS
from dgrctl.runtime.statuses import stage_title

# How often the terminal of a worker looks whether the worker waits for its turn.
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Started:
    """A worker that is ready.

    Attributes:
        exposed: Whether other machines can connect to it.
    """

    recipe: str
    stage: int
    layers: LayerRange
    address: str
    pid: int
    exposed: bool

    def as_dict(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {
            "recipe": self.recipe,
            "stage": self.stage,
            "layers": [self.layers.begin, self.layers.end],
            "address": self.address,
            "pid": self.pid,
        }


def serve_by_hand(
    layout: Layout, recipe: str, stage: int, *, listen: str, storage: str | None, announce: Callable[[Started], None]
) -> None:
    """Runs one stage of a recipe until it ends, or until an interrupt or SIGTERM ends it. Its log lines go to stderr.

    Args:
        listen: host:port; port 0 picks one.
        announce: Told once, when the worker is ready.

    Raises:
        InputError: no such stage, or not an address.
        StageError: the port is taken, or the worker ended by anything but a request to.
    """
    address = parse_address(listen, where="--listen", any_port=True)
    local = check_can_listen(address)
    prepared = prepare(layout, recipe, storage)
    layers = _layers(prepared, stage)
    gate = compute_gate(layout, prepared.recipe, len(prepared.ranges))
    command = worker_command(
        prepared.build,
        prepared.model,
        prepared.recipe,
        layers,
        listen=str(address),
        gate=gate,
    )
    title = stage_title(stage, layers.begin, layers.end)
    process = ServedProcess.spawn(title, command, log=None, isa=prepared.build.isa)
    try:
        await_ready([process], READY_SECONDS)
        announce(Started(prepared.recipe.name, stage, layers, process.address, process.pid, exposed=not local))
        # The client gets the error of a wait that is too long. This terminal only says who is waited for.
        watch = GateWatch(gate, [process.pid], limit=math.inf)
        while (ending := process.wait(_LOOK_SECONDS)) is None:
            watch.look()
    except (KeyboardInterrupt, SystemExit):
        # How an operator ends it.
        return
    finally:
        process.stop(GRACE_SECONDS)
    if ending is not None and not ending.clean:
        raise process.death(ending)


def _layers(prepared: Prepared, stage: int) -> LayerRange:
    stages = len(prepared.ranges)
    if not 0 <= stage < stages:
        raise InputError(
            f"recipe {prepared.recipe.name} has no stage {stage}", where="--stage", remedy=f"name a stage from 0 to {stages - 1}"
        )
    return prepared.ranges[stage]
