"""When the measured pairs are enough, and why a speed measurement is void. Each void begins with its name:

* ``throttling``: a CPU quota stopped the processes while they were measured.
* ``interference``: undecided at the last look, and other work took the processors meanwhile.
* ``undecided``: undecided at the last look, and nothing shows why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from statistics import median

from dgrctl.console import note
from dgrctl.errors import CertificationVoid
from dgrctl.evidence.certification import SpeedPair
from dgrctl.evidence.lock import LockedSpeed
from dgrctl.evidence.looks import estimates, standing

# From here on, a void is called interference. Only the name depends on it, no verdict: a certification alone on its machine keeps
# some tasks waiting, too.
_PRESSURE_PPM = 250_000


def decider(locked: LockedSpeed, nonce: str, *, identical: bool) -> Callable[[Sequence[SpeedPair]], bool]:
    """Whether the pairs so far are enough. At the last look they are, or the run is void.

    Args:
        nonce: The run's.
        identical: No bit differs. A run that fails for its bits needs no decision about its speed.

    Returns:
        A function to be asked after each pair. It raises CertificationVoid.
    """

    def enough(pairs: Sequence[SpeedPair]) -> bool:
        _refuse_throttled(pairs[-1])
        if len(pairs) not in locked.schedule:
            return False
        if standing(pairs, locked, nonce) != "undecided":
            return True
        intervals = _intervals(pairs, locked, nonce)
        if len(pairs) < locked.schedule[-1]:
            note(f"The speed is undecided after {len(pairs)} pairs: {intervals}. More pairs are measured.")
        elif identical:
            raise _void(pairs, intervals)
        return False

    return enough


def contention(pairs: Sequence[SpeedPair]) -> tuple[bool, str]:
    """Whether other work took the processors, and what shows it."""
    loads = [float(pair.load_1m) for pair in pairs]
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = f"load average up to {max(loads):.2f} on {processors} processors"
    pressures = [pair.pressure_ppm for pair in pairs if pair.pressure_ppm is not None]
    if not pressures:
        told += "; this kernel shows no pressure figures (/proc/pressure/cpu is missing)"
        return median(loads) > 2 * processors, told
    told += f"; some task waited for a processor during {median(pressures) / 10_000:.0f} % of a pair's time (median)"
    return median(pressures) >= _PRESSURE_PPM or median(loads) > 2 * processors, told


def _refuse_throttled(pair: SpeedPair) -> None:
    if pair.throttled_periods:
        raise CertificationVoid(
            f"throttling: a CPU quota stopped the processes in {pair.throttled_periods} periods while one pair was measured",
            where="speed",
            remedy="raise or remove the CPU quota of this container, or certify a recipe with fewer threads",
        )


def _void(pairs: Sequence[SpeedPair], intervals: str) -> CertificationVoid:
    interference, told = contention(pairs)
    return CertificationVoid(
        f"{'interference' if interference else 'undecided'}: after {len(pairs)} pairs, the most that the lock allows, "
        f"the speed is neither above nor below its bound: {intervals}; {told}",
        where="speed",
        remedy="end the other work on this machine, then certify again" if interference else "certify again on a machine at rest",
    )


def _intervals(pairs: Sequence[SpeedPair], locked: LockedSpeed, nonce: str) -> str:
    minima = (("prefill", locked.min_ratio_prefill), ("decode", locked.min_ratio_decode))
    return ", ".join(
        f"{phase} {ratio.ratio} (interval {ratio.low} to {ratio.high}, bound {minimum})"
        for (phase, minimum), ratio in zip(minima, estimates(pairs, locked, nonce), strict=True)
    )
