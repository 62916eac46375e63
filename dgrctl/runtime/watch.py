"""Tells at once when one of several processes dies, and afterwards which and how."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from dgrctl.errors import DgrError, StageError
from dgrctl.runtime.process import ServedProcess
from dgrctl.termination import unbroken

# A dead process closes its connections before its parent can be told of its death.
_DEATH_SECONDS = 0.5


class DeathWatch:
    """Watches from a thread of its own, for the length of the block.

    Args:
        on_death: Called from that thread, once for each process that dies.

    Attributes:
        first: The process that died first; it explains the failures that follow.
    """

    def __init__(self, processes: Sequence[ServedProcess], on_death: Callable[[], None]) -> None:
        self.first: ServedProcess | None = None
        self._processes = {process.pidfd: process for process in processes}
        self._on_death = on_death
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._died = threading.Event()
        self._thread = threading.Thread(target=self._run, name="death-watch", daemon=True)

    def __enter__(self) -> Self:
        with unbroken():
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def explain(self, error: DgrError) -> DgrError:
        """The end or the suspension of a process, where that is why a call failed; else ``error`` itself.

        "Stage 1 was killed by SIGKILL" says more than "the connection was reset".
        """
        if not isinstance(error, StageError):
            return error
        for process in self._processes.values():
            if process.stopped:
                return StageError(
                    f"{process.title} cannot be reached: its process is stopped",
                    where=process.where,
                    remedy=f"find out who stopped it; kill -CONT {process.pid} lets such a process go on",
                )
        self._died.wait(_DEATH_SECONDS)
        ending = self.first.wait(0) if self.first is not None else None
        if self.first is None or ending is None:
            return error
        return self.first.death(ending)

    def _run(self) -> None:
        watch = select.poll()
        for descriptor in (self._wake, *self._processes):
            watch.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in watch.poll():
                if descriptor == self._wake:
                    return
                watch.unregister(descriptor)
                process = self._processes[descriptor]
                process.wait()
                self.first = self.first or process
                self._died.set()
                self._on_death()
