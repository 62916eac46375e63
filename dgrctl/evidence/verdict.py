"""The verdict: a pure function of the numbers and the lock, the same for the run that signs it and for whoever verifies it."""

from __future__ import annotations

from fractions import Fraction

from dgrctl.evidence.certification import Parity, RatioEstimate, Speed
from dgrctl.evidence.lock import Lock


def reasons_to_fail(parity: Parity, speed: Speed, lock: Lock) -> tuple[str, ...]:
    """Why these results fail under ``lock``, in sentences; empty where they pass."""
    return (*parity_reasons(parity), *_speed_reasons(speed, lock))


def parity_reasons(parity: Parity) -> list[str]:
    """Those of parity alone."""
    totals = parity.totals
    compared = [
        ("logits", totals.logits_compared, totals.logits_differing, f", by up to {totals.max_abs_difference}"),
        (
            "boundary values",
            totals.boundary_values_compared,
            totals.boundary_values_differing,
            f", by up to {totals.boundary_max_abs_difference}",
        ),
        ("chosen tokens", totals.tokens_compared, totals.tokens_differing, ""),
    ]
    return [
        f"{differing} of {total} {what} differ from the reference{by}; the lock demands bit-identical"
        for what, total, differing, by in compared
        if differing
    ]


def _speed_reasons(speed: Speed, lock: Lock) -> list[str]:
    judged: list[tuple[str, RatioEstimate, str]] = [
        ("prefill", speed.prefill, lock.speed.min_ratio_prefill),
        ("decode", speed.decode, lock.speed.min_ratio_decode),
    ]
    return [
        f"{phase} runs at {result.ratio} of the whole model's speed (interval {result.low} to {result.high}); "
        f"the lock demands a lower bound of at least {minimum}"
        for phase, result, minimum in judged
        if Fraction(result.low) < Fraction(minimum)
    ]
