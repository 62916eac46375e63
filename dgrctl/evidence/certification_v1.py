"""Evidence of the predicate ``lane-certification/v1``, which gave its reasons as sentences.

It still verifies: everything but those sentences is the present predicate. The sentences below are frozen. They are what
version 1 signed, and no change of wording elsewhere may reach them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from dgrctl.evidence.certification import Certification, Parity, Speed
from dgrctl.evidence.parsing import convert, refusal
from dgrctl.evidence.verdict import gates_of

PREDICATE_TYPE = "https://dgr.dev/lane-certification/v1"


class _Reasons(msgspec.Struct, frozen=True):
    """The members in which version 1 differs from version 2."""

    schema: int
    reasons: tuple[str, ...]


def read(predicate: dict[str, Any], where: str) -> Certification:
    """The certification of a version 1 predicate, as version 2 has it.

    Raises:
        EvidenceError: other fields than version 1 had, or other reasons than its numbers give.
    """
    old = convert(predicate, _Reasons, what="certification", where=where)
    if old.schema != 1 or predicate["schema"] is True or "gates" in predicate:
        raise refusal("the certification has a field that version 1 does not have", where)
    rest = {name: value for name, value in predicate.items() if name not in ("schema", "reasons")}
    found = convert({**rest, "schema": 2, "gates": []}, Certification, what="certification", where=where)
    if old.reasons != _sentences(found.parity, found.speed):
        raise refusal("its reasons are not those that its numbers give", where)
    return msgspec.structs.replace(found, gates=gates_of(found.parity, found.speed, found.speed))


def _sentences(parity: Parity, speed: Speed) -> tuple[str, ...]:
    totals = parity.totals
    compared = (
        ("logits", totals.logits_compared, totals.logits_differing, f", by up to {totals.max_abs_difference}"),
        (
            "boundary values",
            totals.boundary_values_compared,
            totals.boundary_values_differing,
            f", by up to {totals.boundary_max_abs_difference}",
        ),
        ("chosen tokens", totals.tokens_compared, totals.tokens_differing, ""),
    )
    judged = (("prefill", speed.prefill, speed.min_ratio_prefill), ("decode", speed.decode, speed.min_ratio_decode))
    return (
        *(
            f"{differing} of {total} {what} differ from the reference{by}; the lock demands bit-identical"
            for what, total, differing, by in compared
            if differing
        ),
        *(
            f"{phase} runs at {result.ratio} of the whole model's speed (interval {result.low} to {result.high}); "
            f"the lock demands a lower bound of at least {minimum}"
            for phase, result, minimum in judged
            if Fraction(result.low) < Fraction(minimum)
        ),
    )
