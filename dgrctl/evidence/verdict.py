"""The verdict: a pure function of the numbers and the lock, the same for the run that signs it and for whoever verifies it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from dgrctl.evidence.certification import Certification, Gate, Parity, Speed
from dgrctl.evidence.fields import Verdict
from dgrctl.evidence.lock import LockedSpeed


def gates_of(parity: Parity, speed: Speed, demanded: LockedSpeed | Speed) -> tuple[Gate, ...]:
    """What is demanded and what these results give, demand by demand.

    Args:
        demanded: Whose minimum ratios count.
    """
    totals = parity.totals
    return (
        Gate(id="logits", measured=str(totals.logits_differing), required="0", passed=not totals.logits_differing),
        Gate(
            id="boundary-values",
            measured=str(totals.boundary_values_differing),
            required="0",
            passed=not totals.boundary_values_differing,
        ),
        Gate(id="tokens", measured=str(totals.tokens_differing), required="0", passed=not totals.tokens_differing),
        Gate(
            id="prefill",
            measured=speed.prefill.low,
            required=demanded.min_ratio_prefill,
            passed=Fraction(speed.prefill.low) >= Fraction(demanded.min_ratio_prefill),
        ),
        Gate(
            id="decode",
            measured=speed.decode.low,
            required=demanded.min_ratio_decode,
            passed=Fraction(speed.decode.low) >= Fraction(demanded.min_ratio_decode),
        ),
    )


def verdict_of(gates: Iterable[Gate]) -> Verdict:
    """Passed if every gate is."""
    return "passed" if all(gate.passed for gate in gates) else "failed"


def identical(parity: Parity) -> bool:
    """Whether no bit and no token differs."""
    totals = parity.totals
    return not (totals.logits_differing or totals.boundary_values_differing or totals.tokens_differing)


def reasons(certification: Certification) -> tuple[str, ...]:
    """Why a certification failed, in sentences for people; empty where it passed. Nobody compares them."""
    return tuple(_sentence(gate, certification) for gate in certification.gates if not gate.passed)


def _sentence(gate: Gate, certification: Certification) -> str:
    totals, speed = certification.parity.totals, certification.speed
    match gate.id:
        case "logits":
            return _differing(gate, totals.logits_compared, "logits", totals.max_abs_difference)
        case "boundary-values":
            return _differing(gate, totals.boundary_values_compared, "boundary values", totals.boundary_max_abs_difference)
        case "tokens":
            return _differing(gate, totals.tokens_compared, "chosen tokens", None)
        case "prefill" | "decode":
            ratio = speed.prefill if gate.id == "prefill" else speed.decode
            return (
                f"{gate.id} runs at {ratio.ratio} of the whole model's speed (interval {ratio.low} to {ratio.high}); "
                f"the lock demands a lower bound of at least {gate.required}"
            )


def _differing(gate: Gate, compared: int, what: str, largest: str | None) -> str:
    by = f", by up to {largest}" if largest is not None else ""
    return f"{gate.measured} of {compared} {what} differ from the reference{by}; the lock demands bit-identical"
