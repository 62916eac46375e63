"""Routes: a chain of workers that is asked at its head.

:class:`LocalRoute` starts the workers of a recipe on this machine and watches them die; :class:`RunningRoute` uses workers that
somebody else started.
"""

from __future__ import annotations

import abc
import contextlib
import secrets
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dgr.v1 import common_pb2, worker_pb2

from dgrctl.artifacts.local import LocalModel
from dgrctl.errors import DgrError, StageError
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.fingerprint import expected
from dgrctl.recipes.placement import LayerRange
from dgrctl.recipes.recipe import Recipe
from dgrctl.runtime.chain import Stage, check_chain
from dgrctl.runtime.client import Stream, WorkerClient
from dgrctl.runtime.commands import compute_gate, worker_command
from dgrctl.runtime.gate import GateWatch
from dgrctl.runtime.process import ServedProcess, await_ready, stop_all
from dgrctl.runtime.runlog import run_folder
from dgrctl.runtime.statuses import stage_title
from dgrctl.runtime.watch import DeathWatch

READY_SECONDS = 600.0
GRACE_SECONDS = 3.0
# After a failure there is nothing to finish, and somebody waits for the report.
_GRACE_AFTER_FAILURE_SECONDS = 0.1


def new_session() -> common_pb2.SessionKey:
    """A session of its own, in its first epoch."""
    return common_pb2.SessionKey(route_session_id=secrets.token_hex(16), route_epoch=1)


class Route(abc.ABC):
    """Stages that were checked to fit together; a context manager.

    Attributes:
        stages: In route order, head first.
        client: Of the head.
        clients: Of every stage, in route order.
    """

    def __init__(self, *, prefill_window: int) -> None:
        self.stages: list[Stage] = []
        self.clients: list[WorkerClient] = []
        self._prefill_window = prefill_window
        self._stack = contextlib.ExitStack()

    @property
    def client(self) -> WorkerClient:
        return self.clients[0]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def generate(
        self,
        prompt: common_pb2.Prompt,
        *,
        max_tokens: int,
        session: common_pb2.SessionKey | None = None,
        ignore_end_of_generation: bool = False,
        logits: common_pb2.OutputRows = common_pb2.OUTPUT_ROWS_NONE,
        credit: int = 0,
    ) -> Generator[worker_pb2.GenerateResponse]:
        """Greedy generation. Ending the iteration early closes the session on every stage. Thread-safe.

        Args:
            session: A key of the caller's, for example one that is tapped; default a new one.
            logits: NONE, or ALL or LAST of workers that allow probes.
            credit: Tokens until it waits for :meth:`grant`, which needs ``session``; 0: it never waits.

        Raises:
            InputError: the prompt is empty or malformed.
            AdmissionError: a bound was hit, before anything was computed.
            StageError: a stage died, failed or cannot be reached; which, and how.
        """
        request = worker_pb2.GenerateRequest(
            session=session or new_session(),
            stages=[stage.wire for stage in self.stages],
            prompt=prompt,
            max_tokens=max_tokens,
            ignore_end_of_generation=ignore_end_of_generation,
            prefill_window=self._prefill_window,
            logits=logits,
            credit=credit,
        )
        with self._started(self.client.generate(request)) as stream:
            try:
                yield from stream
            except DgrError as error:
                raise self.explain(error) from error

    def grant(self, session: common_pb2.SessionKey, tokens: int) -> None:
        """Lets a generation that was started with a credit generate ``tokens`` more, at least 1. Thread-safe.

        Raises:
            StageError: no such generation is under way, or a stage died.
        """
        try:
            self.client.grant(session, tokens)
        except DgrError as error:
            raise self.explain(error) from error

    @abc.abstractmethod
    def _open(self, stack: contextlib.ExitStack) -> None:
        """Fills ``stages`` and ``clients``; what is to be closed again goes onto the stack."""

    def _connect(self, stack: contextlib.ExitStack, addresses: Sequence[tuple[str, str]]) -> None:
        """Describes every worker and checks the chain; ``addresses``: title and host:port of each."""
        for index, (title, address) in enumerate(addresses):
            client = stack.enter_context(WorkerClient(address, title))
            stage = Stage.of(index, address, client.describe())
            client.title = stage.title
            self.clients.append(client)
            self.stages.append(stage)
        check_chain(self.stages)

    @contextlib.contextmanager
    def _started(self, stream: Stream[worker_pb2.GenerateResponse]) -> Iterator[Stream[worker_pb2.GenerateResponse]]:
        with stream:
            yield stream

    def explain(self, error: DgrError) -> DgrError:
        """What is behind a failed call to one of the stages, as far as it can be seen from here."""
        return error


class RunningRoute(Route):
    """Workers that already run, in route order.

    Raises (on entering):
        InputError: they do not form a route.
        StageError: one cannot be reached.
    """

    def __init__(self, addresses: Sequence[str], *, prefill_window: int = 1) -> None:
        super().__init__(prefill_window=prefill_window)
        self._addresses = addresses

    def _open(self, stack: contextlib.ExitStack) -> None:
        self._connect(stack, [(f"stage {index}", address) for index, address in enumerate(self._addresses)])


class LocalRoute(Route):
    """One worker per range on this machine, ended with the block, whatever ends it.

    Args:
        any_architecture: Serve what the roster does not allow; with ``allow_probes`` only.

    Attributes:
        processes: In route order.
        folder: Where their logs are.

    Raises (on entering):
        DgrError: a worker refused, died or was not ready in time, or the workers do not form the route that was asked for.
    """

    def __init__(
        self,
        layout: Layout,
        recipe: Recipe,
        model: LocalModel,
        build: BuildRecord,
        ranges: Sequence[LayerRange],
        *,
        allow_probes: bool = False,
        any_architecture: bool = False,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        super().__init__(prefill_window=recipe.execution.prefill_window)
        self.processes: list[ServedProcess] = []
        self.folder = Path()
        self._layout = layout
        self._recipe = recipe
        self._model = model
        self._build = build
        self._ranges = ranges
        self._allow_probes = allow_probes
        self._any_architecture = any_architecture
        self._ready_seconds = ready_seconds
        self._streams: set[Stream[worker_pb2.GenerateResponse]] = set()
        self._lock = threading.Lock()

    def _open(self, stack: contextlib.ExitStack) -> None:
        self.folder = stack.enter_context(run_folder(self._layout))
        stack.push(self._stop)
        self._gate = compute_gate(self._layout, self._recipe, len(self._ranges))
        for index, layers in enumerate(self._ranges):
            self.processes.append(self._spawn(index, layers))
        await_ready(self.processes, self._ready_seconds)
        self._watch = stack.enter_context(DeathWatch(self.processes, self._cancel_all))
        try:
            self._connect(stack, [(process.title, process.address) for process in self.processes])
        except StageError as error:
            raise self.explain(error) from error
        self._check_as_asked()

    def _spawn(self, index: int, layers: LayerRange) -> ServedProcess:
        command = worker_command(
            self._build,
            self._model,
            self._recipe,
            layers,
            gate=self._gate,
            allow_probes=self._allow_probes,
            any_architecture=self._any_architecture,
        )
        title = stage_title(index, layers.begin, layers.end)
        return ServedProcess.spawn(title, command, log=self.folder / f"stage-{index}.log", isa=self._build.isa)

    def _stop(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        del error, trace
        stop_all(self.processes, GRACE_SECONDS if kind is None else _GRACE_AFTER_FAILURE_SECONDS)

    def _cancel_all(self) -> None:
        """From the watching thread: every generation under way ends now, not when its connection notices."""
        with self._lock:
            for stream in self._streams:
                stream.cancel()

    @contextlib.contextmanager
    def _started(self, stream: Stream[worker_pb2.GenerateResponse]) -> Iterator[Stream[worker_pb2.GenerateResponse]]:
        gate = GateWatch(self._gate, [process.pid for process in self.processes])
        stream.idle = gate.look
        with self._lock:
            self._streams.add(stream)
        if self._watch.first is not None:
            stream.cancel()
        try:
            with stream:
                yield stream
        finally:
            gate.moved()
            with self._lock:
                self._streams.discard(stream)

    def explain(self, error: DgrError) -> DgrError:
        return self._watch.explain(error)

    def _check_as_asked(self) -> None:
        """That each worker serves what its command line asked for, and not what it made of it."""
        wanted = expected(self._recipe, self._model)
        for stage, layers in zip(self.stages, self._ranges, strict=True):
            document = stage.description.compatibility
            wrong = [f"{key} = {document.get(key)!r}" for key, value in wanted.items() if document.get(key) != value]
            if stage.layers != layers:
                wrong.append(f"layers = {stage.layers}")
            if wrong:
                raise StageError(
                    f"{stage.title} does not serve what it was started for: {', '.join(wrong)}",
                    where=stage.address,
                    remedy="build it again: dgrctl build",
                )
