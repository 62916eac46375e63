"""The oracle as a process: dgr-reference, the whole model in the unpatched upstream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from dgrctl.artifacts.local import LocalModel
from dgrctl.errors import DgrError
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import Recipe
from dgrctl.runtime.client import ReferenceClient
from dgrctl.runtime.commands import reference_command
from dgrctl.runtime.process import ServedProcess, await_ready, stop_all
from dgrctl.runtime.route import GRACE_SECONDS, READY_SECONDS
from dgrctl.runtime.runlog import run_folder
from dgrctl.runtime.watch import DeathWatch


class LocalReference:
    """dgr-reference with a recipe's execution settings; a context manager.

    Args:
        threads: Compute threads, where not the recipe's number for a stage.

    Attributes:
        client: Its calls. Make them inside :meth:`explained`, so that a death is reported as what it was.
        process: The process.

    Raises (on entering):
        DgrError: it refused, died or was not ready in time.
    """

    client: ReferenceClient
    process: ServedProcess

    def __init__(
        self,
        layout: Layout,
        recipe: Recipe,
        model: LocalModel,
        build: BuildRecord,
        *,
        threads: int | None = None,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        self._layout = layout
        self._command = reference_command(build, model, recipe, threads=threads)
        self._isa = build.isa
        self._ready_seconds = ready_seconds

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(run_folder(self._layout)) / "reference.log"
            self.process = ServedProcess.spawn("the reference", self._command, log=log, isa=self._isa)
            stack.callback(stop_all, [self.process], GRACE_SECONDS)
            await_ready([self.process], self._ready_seconds)
            self._watch = stack.enter_context(DeathWatch([self.process], lambda: None))
            self.client = stack.enter_context(ReferenceClient(self.process.address))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Says how the process ended where that is why a call in the block failed."""
        try:
            yield
        except DgrError as error:
            raise self._watch.explain(error) from error
