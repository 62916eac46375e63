"""When a speed measurement is decided: the same rule for the run that measures and for whoever verifies it.

A lock without looks judges once, after its number of pairs: it passes if both intervals lie at or above their bounds, and fails
otherwise. A busy neighbour widens an interval until it holds the bound, and such an interval says nothing about the split.

A lock with looks, such as 15, 30 and 60 pairs, judges at each look all pairs so far:

* *above*: both intervals lie at or above their bounds. The measurement ends, and the speed passes.
* *below*: one interval lies wholly below its bound. The measurement ends, and the speed fails.
* *undecided*: anything else. More pairs are measured, up to the last look. Undecided there, the run is void.

Whoever looks several times and stops when he likes the result is wrong more often than one interval's confidence says. So the
looks are fixed beforehand, and the chance of an error that the lock's confidence allows is divided among them (Bonferroni's
inequality; for group sequential tests see C. Jennison and B. W. Turnbull, Group Sequential Methods with Applications to Clinical
Trials, Chapman & Hall, 1999). At confidence 0.95, a split whose true ratio lies below its bound passes with a chance
of at most 2.5 percent, however loud the noise is. One whose true ratios reach both bounds fails because of prefill with a chance
of at most 2.5 percent, and because of decode with the same. Pairs must be independent of each other; no distribution is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from dgrctl.evidence.certification import RatioEstimate, SpeedPair
from dgrctl.evidence.lock import LockedSpeed
from dgrctl.evidence.ratios import estimate, exact_estimate

Standing = Literal["above", "below", "undecided"]


def estimates(pairs: Sequence[SpeedPair], locked: LockedSpeed, nonce: str) -> tuple[RatioEstimate, RatioEstimate]:
    """Prefill's and decode's ratio and interval, as the lock's rule defines them.

    Args:
        nonce: The run's; it seeds a bootstrap.
    """
    prefill = [(pair.whole_prefill_us, pair.split_prefill_us) for pair in pairs]
    decode = [(pair.whole_decode_us, pair.split_decode_us) for pair in pairs]
    if locked.looks:
        return exact_estimate(prefill, locked.miss), exact_estimate(decode, locked.miss)

    def bootstrapped(phase: str, durations: list[tuple[int, int]]) -> RatioEstimate:
        resamples = locked.bootstrap_resamples
        return estimate(durations, confidence=locked.confidence, resamples=resamples, seed=f"{nonce}:{phase}")

    return bootstrapped("prefill", prefill), bootstrapped("decode", decode)


def standing(pairs: Sequence[SpeedPair], locked: LockedSpeed, nonce: str) -> Standing:
    """How the intervals of these pairs lie to their bounds."""
    found = estimates(pairs, locked, nonce)
    minima = (Fraction(locked.min_ratio_prefill), Fraction(locked.min_ratio_decode))
    if all(Fraction(ratio.low) >= minimum for ratio, minimum in zip(found, minima, strict=True)):
        return "above"
    if not locked.looks or any(Fraction(ratio.high) < minimum for ratio, minimum in zip(found, minima, strict=True)):
        return "below"
    return "undecided"


def pairs_demanded(pairs: Sequence[SpeedPair], locked: LockedSpeed, nonce: str) -> int:
    """The number of pairs at which a measurement that begins with these pairs must end: the first look that decides, or the last.

    Where fewer pairs are there, it is the next look.
    """
    for look in locked.schedule:
        if look >= len(pairs) or standing(pairs[:look], locked, nonce) != "undecided":
            return look
    return locked.schedule[-1]
