"""A finished run in words for people, and as the JSON document that scripts read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.markup import escape

from dgrctl.certify.run import Result
from dgrctl.console import stderr
from dgrctl.evidence.certification import Parity, RatioEstimate, Speed
from dgrctl.evidence.verdict import reasons
from dgrctl.report.table import table_lines


def as_dict(result: Result) -> dict[str, object]:
    """What ``dgrctl certify --json`` prints."""
    certified = result.certification
    totals = certified.parity.totals
    return {
        "verdict": certified.verdict,
        "reasons": list(reasons(certified)),
        "gates": msgspec.to_builtins(certified.gates),
        "lane": certified.lane,
        "device": certified.device.label,
        "model": certified.model.id,
        "recipe": certified.recipe.name,
        "lock": f"{certified.lock.id}.v{certified.lock.version}",
        "nonce": certified.run.nonce,
        "evidence": str(result.evidence),
        "parity": {
            "runs": totals.runs,
            "positions": totals.positions,
            "logits_compared": totals.logits_compared,
            "logits_differing": totals.logits_differing,
            "max_abs_difference": totals.max_abs_difference,
            "greedy_rows_differing": totals.greedy_rows_differing,
            "boundary_values_compared": totals.boundary_values_compared,
            "boundary_values_differing": totals.boundary_values_differing,
            "boundary_max_abs_difference": totals.boundary_max_abs_difference,
            "tokens_compared": totals.tokens_compared,
            "tokens_differing": totals.tokens_differing,
        },
        "speed": {
            "pairs": len(certified.speed.pairs),
            "prefill": _ratio(certified.speed.prefill, certified.speed.min_ratio_prefill),
            "decode": _ratio(certified.speed.decode, certified.speed.min_ratio_decode),
        },
    }


def _ratio(ratio: RatioEstimate, minimum: str) -> dict[str, str]:
    return {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high, "minimum": minimum}


def show(result: Result) -> None:
    """Prints the summary on stderr."""
    certified = result.certification
    colour = "green" if certified.verdict == "passed" else "red"
    _show_table(("parity", "compared", "differing", "largest difference"), _parity(certified.parity))
    speed = certified.speed
    _show_table((f"speed, {len(speed.pairs)} pairs", "whole", "split", "split / whole", "interval", "required"), _speed(speed))
    stderr.print(
        f"[bold {colour}]{certified.verdict}[/]: {escape(certified.recipe.name)} on {escape(certified.device.label)}, "
        f"lock {escape(certified.lock.id)}.v{certified.lock.version}"
    )
    for reason in reasons(certified):
        stderr.print(f"  because {escape(reason)}")
    stderr.print(f"  evidence: {escape(str(result.evidence))}")


def _show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in table_lines(headings, rows, stderr.width if stderr.is_terminal else None):
        stderr.print(escape(line))


def _parity(parity: Parity) -> list[tuple[str, ...]]:
    totals = parity.totals
    rows = sum(run.logit_rows for run in parity.runs)
    return [
        ("logits", f"{totals.logits_compared:,}", f"{totals.logits_differing:,}", totals.max_abs_difference),
        (
            "boundary values",
            f"{totals.boundary_values_compared:,}",
            f"{totals.boundary_values_differing:,}",
            totals.boundary_max_abs_difference,
        ),
        ("largest logit of a row", f"{rows:,}", f"{totals.greedy_rows_differing:,}", ""),
        ("sampled tokens", f"{totals.tokens_compared:,}", f"{totals.tokens_differing:,}", ""),
    ]


def _speed(speed: Speed) -> list[tuple[str, ...]]:
    prefill, decode = speed.prompt_tokens, speed.generate_tokens - 1
    return [
        _phase(f"prefill of {prefill}", prefill, speed.prefill, speed.min_ratio_prefill),
        _phase(f"decode of {decode}", decode, speed.decode, speed.min_ratio_decode),
    ]


def _phase(name: str, tokens: int, ratio: RatioEstimate, minimum: str) -> tuple[str, ...]:
    return (
        name,
        f"{tokens * 1e6 / ratio.whole_median_us:.1f} t/s",
        f"{tokens * 1e6 / ratio.split_median_us:.1f} t/s",
        _short(ratio.ratio),
        f"{_short(ratio.low)} … {_short(ratio.high)}",
        f"≥ {minimum}",
    )


def _short(ratio: str) -> str:
    """Three decimals, cut and not rounded, so that nothing just below a threshold is shown at it."""
    whole, _, fraction = ratio.partition(".")
    return f"{whole}.{fraction[:3]:0<3}"
