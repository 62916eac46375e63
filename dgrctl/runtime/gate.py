"""Tells the user who holds the compute gate while no answer comes.

Workers wait for the gate, and users talk to dgrctl. So dgrctl looks whether one of its workers waits, and for whom.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dgrctl.lockholders import holders, waiting_pids
from dgrctl.statelock import Wait


class GateWatch:
    """Looks at the gate for some workers.

    Args:
        gate: The file; None where these workers take no turns.
        pids: Of the workers.
        limit: The longest wait in seconds; None: as for every lock.
    """

    def __init__(self, gate: Path | None, pids: Iterable[int], *, limit: float | None = None) -> None:
        self._gate = gate
        self._pids = frozenset(pids)
        self._limit = limit
        self._wait: Wait | None = None

    def look(self) -> None:
        """To be called several times a second while nothing comes from the workers.

        Raises:
            LockedError: others have held the gate for longer than the limit.
        """
        if self._gate is None:
            return
        waits = self._pids & waiting_pids(self._gate)
        if not waits or self._pids & {holder.pid for holder in holders(self._gate)}:
            self.moved()
            return
        if self._wait is None:
            self._wait = Wait("the compute gate", self._gate, limit=self._limit)
        try:
            self._wait.tick()
        except BaseException:
            self.moved()
            raise

    def moved(self) -> None:
        """Something came, or the wait is over: the next wait begins anew."""
        if self._wait is not None:
            self._wait.close()
            self._wait = None
