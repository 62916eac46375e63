"""Sums over a certification's parts, used alike by the run that writes them and by whoever verifies it."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Sequence

from dgrctl.evidence.certification import BoundaryParity, Counts, ModelReference, Parity, ParityRun, ParityTotals, Speed
from dgrctl.evidence.lock import Lock

_INFINITE = "infinite"


def parity_totals(runs: Sequence[ParityRun], boundaries: Sequence[BoundaryParity]) -> ParityTotals:
    """The totals of a parity section."""
    return ParityTotals(
        runs=len(runs),
        positions=sum(run.prompt_tokens + run.decode_steps for run in runs),
        logits_compared=sum(run.logits_compared for run in runs),
        logits_differing=sum(run.logits_differing for run in runs),
        max_abs_difference=largest(run.max_abs_difference for run in runs),
        greedy_rows_differing=sum(run.greedy_rows_differing for run in runs),
        boundary_values_compared=sum(cut.values_compared for cut in boundaries),
        boundary_values_differing=sum(cut.values_differing for cut in boundaries),
        boundary_max_abs_difference=largest(cut.max_abs_difference for cut in boundaries),
        tokens_compared=sum(run.tokens_compared for run in runs),
        tokens_differing=sum(run.tokens_differing for run in runs),
    )


def logit_rows(outputs: str, prompt_tokens: int, decode_steps: int) -> int:
    """Rows of logits of one parity run: of every position, or of those sampled from."""
    return (prompt_tokens if outputs == "all" else 1) + decode_steps


def expected_counts(
    lock: Lock, prompt_tokens: Sequence[int], model: ModelReference, cuts: int, pairs: int | None = None
) -> Counts:
    """What a run has to compare, known before it starts.

    Args:
        prompt_tokens: Of each prompt of the lock's prompt set.
        cuts: Interior cuts of the route: stages - 1.
        pairs: What :func:`dgrctl.evidence.looks.pairs_demanded` says; None for a lock without looks.
    """
    steps, outputs = lock.parity.decode_steps, lock.parity.outputs
    rows = sum(logit_rows(kind, tokens, steps) for kind in outputs for tokens in prompt_tokens)
    positions = len(outputs) * sum(tokens + steps for tokens in prompt_tokens)
    runs = len(outputs) * len(prompt_tokens)
    return Counts(
        parity_runs=runs,
        logits=rows * model.vocabulary,
        boundary_values=positions * model.residual_width * cuts,
        tokens=runs * (steps + 1),
        speed_pairs=lock.speed.pairs if pairs is None else pairs,
    )


def actual_counts(parity: Parity, speed: Speed) -> Counts:
    """What a run did compare."""
    return Counts(
        parity_runs=len(parity.runs),
        logits=sum(run.logits_compared for run in parity.runs),
        boundary_values=sum(cut.values_compared for cut in parity.boundaries),
        tokens=sum(run.tokens_compared for run in parity.runs),
        speed_pairs=len(speed.pairs),
    )


def difference_string(value: float) -> str:
    """A non-negative difference as the predicate carries it: nine significant digits, no exponent; NaN counts as infinite."""
    if not math.isfinite(value):
        return _INFINITE
    rounded = decimal.Context(prec=9).create_decimal(value)
    text = format(rounded, "f")
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


def largest(differences: Iterable[str]) -> str:
    """The largest of some differences; "0" of none."""
    return max(differences, key=lambda text: decimal.Decimal("Infinity" if text == _INFINITE else text), default="0")
