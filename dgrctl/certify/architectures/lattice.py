"""One synthesised model at every interior cut, and as a chain of single layers, against the whole model in unpatched upstream.

A worker owns a range and knows nothing of the route it will serve, so one worker for each range serves every route that needs it.
Logits are compared, not residuals: what upstream calls a layer's output differs between architectures.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgr.v1 import common_pb2

from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.synthesised import local_model
from dgrctl.certify.bits import Tally
from dgrctl.certify.observe import observe
from dgrctl.certify.parity import CachedOracle, compare
from dgrctl.certify.parity_set import ReferenceOracle
from dgrctl.certify.plan import OutputMode, PromptPlan
from dgrctl.errors import CertificationVoid, DgrError, InputError
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.recipes.recipe import Boundary, Execution, Placement, Recipe
from dgrctl.runtime.commands import compute_gate, worker_command
from dgrctl.runtime.process import ServedProcess, await_ready, stop_all
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import GRACE_SECONDS, RunningRoute
from dgrctl.runtime.runlog import run_folder

# More tokens than two ubatches and than the synthesised models' sliding window of 32.
PROMPT_TOKENS = 41
DECODE_STEPS = 6
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class RouteOutcome:
    """What one route showed: ``problem`` says why nothing could be compared, ``refused`` that the engine itself forbids it."""

    cuts: tuple[int, ...]
    logits: Tally = field(default_factory=Tally)
    problem: str = ""
    refused: bool = False

    @property
    def identical(self) -> bool:
        return not self.problem and self.logits.compared > 0 and self.logits.differing == 0


def recipe(*, flash_attention: bool) -> Recipe:
    """How every model of the lattice is run; one thread, since the workers share the processors."""
    return Recipe(
        schema=1,
        name="architectures",
        model="architectures",
        lane="cpu",
        placement=Placement(stages=2),
        boundary=Boundary(wire="f32"),
        execution=Execution(
            threads=1,
            context=128,
            sessions=1,
            ubatch=16,
            flash_attention=flash_attention,
            kv_type_k="f16",
            kv_type_v="f16",
            prefill_window=1,
        ),
    )


def check_model(layout: Layout, build: BuildRecord, path: Path) -> list[RouteOutcome]:
    """Runs every route over the model ``path``.

    Raises:
        InputError: the reference refuses the model; says why.
        StageError: the reference died of it.
    """
    model = local_model(path)
    try:
        return _check(layout, build, model, recipe(flash_attention=True))
    except InputError:
        # Not every architecture has an attention that ggml's fused one computes.
        return _check(layout, build, model, recipe(flash_attention=False))


def routes(layers: int) -> list[tuple[int, ...]]:
    """The cuts of each route: every interior cut alone, then all of them."""
    single: list[tuple[int, ...]] = [(cut,) for cut in range(1, layers)]
    return single if layers < 3 else [*single, tuple(range(1, layers))]


def _ranges(cuts: Sequence[int], layers: int) -> list[LayerRange]:
    return [LayerRange(begin, end) for begin, end in zip((0, *cuts), (*cuts, layers), strict=True)]


@dataclass(frozen=True)
class _Bench:
    """One model set up to be run: its workers by range (or why one does not serve), its oracle, and what it is asked."""

    workers: dict[LayerRange, ServedProcess | DgrError]
    oracle: CachedOracle
    tokens: tuple[int, ...]
    ubatch: int
    folder: Path
    model: Path

    def anonymous(self, text: str) -> str:
        """Without what differs from checkout to checkout: the roster is the same wherever it is made."""
        return text.replace(str(self.model), self.model.name)


def _check(layout: Layout, build: BuildRecord, model: LocalModel, chosen: Recipe) -> list[RouteOutcome]:
    with contextlib.ExitStack() as stack:
        reference = stack.enter_context(LocalReference(layout, chosen, model, build))
        folder = stack.enter_context(run_folder(layout))
        described = reference.client.describe()
        layers = described.layer_count
        commands = {
            layer_range: worker_command(
                build,
                model,
                chosen,
                layer_range,
                gate=compute_gate(layout, chosen, layers),
                allow_probes=True,
                any_architecture=True,
            )
            for cuts in routes(layers)
            for layer_range in _ranges(cuts, layers)
        }
        bench = _Bench(
            workers=stack.enter_context(_serving(commands, build.isa, folder)),
            oracle=CachedOracle(ReferenceOracle(reference), ()),
            # No secret: the same tokens at every run.
            tokens=tuple(random.Random(layers).choices(range(described.vocabulary), k=PROMPT_TOKENS)),  # noqa: S311
            ubatch=chosen.execution.ubatch,
            folder=folder,
            model=model.first_part,
        )
        return [_run_route(bench, cuts, layers) for cuts in routes(layers)]


@contextlib.contextmanager
def _serving(
    commands: dict[LayerRange, list[str]], isa: str, folder: Path
) -> Iterator[dict[LayerRange, ServedProcess | DgrError]]:
    """A worker for each range, or why it does not serve."""
    spawned: dict[LayerRange, ServedProcess] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: stop_all(list(spawned.values()), GRACE_SECONDS))
        for index, (layers, command) in enumerate(sorted(commands.items())):
            title = f"the stage {layers}"
            spawned[layers] = ServedProcess.spawn(title, command, log=folder / f"stage-{index}.log", isa=isa)
        yield {layers: _ready(process) for layers, process in spawned.items()}


def _ready(process: ServedProcess) -> ServedProcess | DgrError:
    try:
        await_ready([process], _READY_SECONDS)
    except DgrError as error:
        return error
    return process


def _run_route(bench: _Bench, cuts: tuple[int, ...], layers: int) -> RouteOutcome:
    processes: list[ServedProcess] = []
    for layer_range in _ranges(cuts, layers):
        worker = bench.workers[layer_range]
        if isinstance(worker, DgrError):
            return RouteOutcome(cuts, problem=bench.anonymous(worker.what), refused=isinstance(worker, InputError))
        processes.append(worker)
    try:
        with RunningRoute([process.address for process in processes]) as route:
            return RouteOutcome(cuts, _compare(bench, route, cuts))
    except CertificationVoid as error:
        return RouteOutcome(cuts, problem=f"{error.what}: {error.detail or error.where}")
    except DgrError as error:
        endings = [(process, process.wait(0)) for process in processes]
        died = next((f"{process.title} {ending}" for process, ending in endings if ending is not None), None)
        return RouteOutcome(cuts, problem=died or error.what)


def _compare(bench: _Bench, route: RunningRoute, cuts: tuple[int, ...]) -> Tally:
    prompt = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=bench.tokens))
    logits = Tally()
    for mode in OutputMode:
        plan = PromptPlan(
            prompt_id="random",
            mode=mode,
            tokens=bench.tokens,
            decode_steps=DECODE_STEPS,
            ubatch=bench.ubatch,
            stage_count=len(cuts) + 1,
        )
        with contextlib.closing(observe(route, plan, prompt, bench.folder)) as observation:
            logits.merge(compare(plan, cuts, observation, bench.oracle, residuals=False).logits)
    return logits
