"""The split's speed as a fraction of the whole's, in integers: whoever repeats the arithmetic gets the same digits.

Definition, complete enough to be repeated in any language:

* A pair's ratio is whole time * 10**6 // split time, in parts per million. It is formed inside the pair, whose halves ran in
  turns: a machine that slows down for both does not move it.
* A median is the middle value in order; of an even number the two middle ones' sum // 2.
* Resample r of n pairs draws n of the ratios. Draw i (counted over all resamples, from 0) takes the ratio at position
  x mod n, where x is the 64-bit big-endian number at bytes 8 * (i mod 4) of SHA-256(seed ":" decimal(i // 4)).
* Bootstrap interval: the lower bound is the resample medians' value at place floor(resamples * (1 - confidence) / 2) in order,
  the upper bound the value at that place from the end: bounds are taken outward.
* Exact interval: :func:`exact_interval` defines it.

The seed is the run's nonce with the phase, which stands in the ledger before anything is measured: nobody can pick a lucky one.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from dgrctl.evidence.certification import RatioEstimate

MILLION = 1_000_000
_FOUR_NUMBERS = struct.Struct(">4Q")


def estimate(pairs: Sequence[tuple[int, int]], *, confidence: str, resamples: int, seed: str) -> RatioEstimate:
    """Median ratio of (whole, split) durations and its bootstrap interval.

    Args:
        pairs: Durations in microseconds, each positive; at least one pair.
        confidence: Two-sided, a decimal such as "0.95".
        resamples: How often to draw.
        seed: ``f"{nonce}:prefill"`` or ``f"{nonce}:decode"``.

    Raises:
        ValueError: no pairs, or a duration that is not positive: nothing was measured.
    """
    return _estimate(pairs, lambda ratios: interval(ratios, confidence=confidence, resamples=resamples, seed=seed))


def exact_estimate(pairs: Sequence[tuple[int, int]], miss: Fraction) -> RatioEstimate:
    """Like :func:`estimate`, with :func:`exact_interval`."""
    return _estimate(pairs, lambda ratios: exact_interval(ratios, miss))


def _estimate(pairs: Sequence[tuple[int, int]], bounds: Callable[[list[int]], tuple[int, int]]) -> RatioEstimate:
    if not pairs or any(whole <= 0 or split <= 0 for whole, split in pairs):
        raise ValueError("ratios need pairs of positive durations")
    ratios = [whole * MILLION // split for whole, split in pairs]
    low, high = bounds(ratios)
    return RatioEstimate(
        whole_median_us=median([whole for whole, _ in pairs]),
        split_median_us=median([split for _, split in pairs]),
        ratio=millionths(median(ratios)),
        low=millionths(low),
        high=millionths(high),
    )


def interval(values: Sequence[int], *, confidence: str, resamples: int, seed: str) -> tuple[int, int]:
    """Bounds of the bootstrap interval of the median of ``values``, which are not empty; see :func:`estimate`."""
    outside = int(Fraction(resamples) * (1 - Fraction(confidence)) / 2)
    medians = _resampled_medians(tuple(values), resamples, seed)
    return medians[outside], medians[resamples - 1 - outside]


# A run judges, signs and verifies the same numbers, a matrix those of each file again.
@functools.lru_cache(maxsize=64)
def _resampled_medians(values: tuple[int, ...], resamples: int, seed: str) -> tuple[int, ...]:
    """In order."""
    draws = _draws(seed, len(values))
    return tuple(sorted(median([values[next(draws)] for _ in values]) for _ in range(resamples)))


def exact_interval(values: Sequence[int], miss: Fraction) -> tuple[int, int]:
    """An interval of the median of independent ``values``: each bound misses with a chance of at most ``miss``.

    The lower bound is the k-th smallest value, the upper bound the k-th largest. k is the largest number for which the sum of
    C(n, i) / 2**n over i = 0 … k - 1 is at most ``miss``: the k-th smallest of n values lies above their true median only if
    fewer than k of them lie below it. No distribution is assumed and nothing is drawn at random.

    Source: H. A. David and H. N. Nagaraja, Order Statistics, 3rd edition (Wiley, 2003), section 7.1.

    Raises:
        ValueError: there are too few values for any such interval.
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0, 0
    while outside < count and (below + math.comb(count, outside)) <= miss * 2**count:
        below += math.comb(count, outside)
        outside += 1
    if not 0 < outside <= (count + 1) // 2:
        raise ValueError(f"{count} values have no interval that misses with a chance of {miss}")
    return ordered[outside - 1], ordered[count - outside]


def median(values: Sequence[int]) -> int:
    """The middle value; of an even number the mean of the two middle ones, rounded down. ``values`` is not empty."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def millionths(value: int) -> str:
    """``912345`` as "0.912345"."""
    return f"{value // MILLION}.{value % MILLION:06d}"


def _draws(seed: str, count: int) -> Iterator[int]:
    for block in itertools.count():
        for number in _FOUR_NUMBERS.unpack(hashlib.sha256(f"{seed}:{block}".encode()).digest()):
            yield number % count
