"""Certifications whose numbers contradict each other or their lock: refused, whoever signed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from certifications import certification, changed, signed, the_lock

from dgrctl.errors import EvidenceError
from dgrctl.evidence.matrix_file import gather_context
from dgrctl.evidence.trust import local_trust
from dgrctl.evidence.verify import Context, verify_certification
from dgrctl.layout import Layout


def without_ledger(layout: Layout) -> Context:
    return dataclasses.replace(gather_context(layout, local_trust(layout)), ledger=None)


ONE_MORE: Callable[[int], int] = lambda value: value + 1  # noqa: E731
INCONSISTENT: list[tuple[str, Callable[[Any], Any], str]] = [
    ("lane", lambda _: "cuda", "its lane is cuda"),
    ("model.id", lambda _: "other", "its model is other"),
    ("evidence_class", lambda _: "real-model", "its evidence class is real-model"),
    ("device.name", lambda _: "QEMU TCG CPU version 2.5+", "emulator"),
    ("environment.before.cpu_model", lambda _: "llvmpipe (LLVM 15.0.6)", "emulator"),
    ("model.generator", lambda _: "deepseek4/1", "its model is a fixture"),
    ("recipe.ranges", lambda _: ((0, 15), (16, 30)), "ranges"),
    ("recipe.ranges", lambda _: ((1, 15), (15, 30)), "ranges"),
    ("recipe.ranges", lambda _: ((0, 15), (15, 29)), "ranges"),
    ("recipe.ranges", lambda _: ((0, 15), (15, 15), (15, 30)), "ranges"),
    ("run.finished", lambda _: "2026-11-29T11:00:00Z", "ends before"),
    ("run.finished", lambda _: "2026-13-29T11:00:00Z", "a time in it cannot be read"),
    ("run.finished", lambda _: "9999-12-31T23:59:59Z", "no date of a run"),
    ("environment.after.captured_at", lambda _: "2026-11-29T11:00:00Z", "ends before"),
    ("parity.prompt_set.sha256", lambda _: "6" * 64, "prompt set"),
    ("parity.runs", lambda runs: runs[1:], "parity runs"),
    ("parity.runs", lambda runs: (*runs, runs[0]), "parity runs"),
    ("parity.runs.0.prompt", lambda _: "third", "parity runs"),
    ("parity.runs.0.prompt_tokens", ONE_MORE, "different numbers of tokens"),
    ("parity.runs.0.decode_steps", ONE_MORE, "decode steps"),
    ("parity.runs.0.logit_rows", ONE_MORE, "logits in"),
    ("parity.runs.0.logits_compared", ONE_MORE, "logits in"),
    ("parity.runs.0.tokens_compared", ONE_MORE, "tokens compared"),
    ("parity.runs.0.tokens_differing", lambda _: 99, "more tokens differ"),
    ("parity.runs.0.greedy_rows_differing", lambda _: 99, "more tokens differ"),
    ("parity.runs.0.logits_differing", lambda _: 10**9, "values differ"),
    ("parity.runs.0.max_abs_difference", lambda _: "0.1", "no value differs, but"),
    ("parity.boundaries", lambda _: (), "boundaries were compared at cuts"),
    ("parity.boundaries.0.cut", lambda _: 14, "boundaries were compared at cuts"),
    ("parity.boundaries.0.values_compared", ONE_MORE, "cut 15"),
    ("parity.boundaries.0.rows_compared", ONE_MORE, "cut 15"),
    ("parity.boundaries.0.max_abs_difference", lambda _: "infinite", "no value differs, but"),
    ("parity.totals.logits_compared", ONE_MORE, "totals"),
    ("parity.totals.logits_differing", ONE_MORE, "totals"),
    ("parity.totals.boundary_values_differing", ONE_MORE, "totals"),
    ("parity.totals.max_abs_difference", lambda _: "1", "totals"),
    ("speed.warmup", lambda _: 0, "warm-up"),
    ("speed.decode_slice_tokens", lambda _: 0, "turns of tokens 0; the lock demands 8"),
    ("speed.pairs", lambda pairs: pairs[1:], "pairs"),
    ("speed.prompt_tokens", ONE_MORE, "prompt tokens"),
    ("speed.generate_tokens", ONE_MORE, "generated tokens"),
    ("speed.confidence", lambda _: "0.50", "confidence"),
    ("speed.bootstrap_resamples", ONE_MORE, "resamples"),
    ("speed.min_ratio_prefill", lambda _: "0.10", "minimum ratio of prefill"),
    ("speed.min_ratio_decode", lambda _: "0.10", "minimum ratio of decode"),
    ("speed.pairs.3.split_prefill_us", lambda _: 1, "prefill ratio does not follow"),
    ("speed.prefill.ratio", lambda _: "0.999999", "prefill ratio does not follow"),
    ("speed.decode.low", lambda _: "0.999999", "decode ratio does not follow"),
    ("speed.decode.high", lambda _: "0.999999", "decode ratio does not follow"),
    ("speed.decode.whole_median_us", ONE_MORE, "decode ratio does not follow"),
    ("completion.actual.logits", ONE_MORE, "counts other than"),
    ("completion.expected.logits", ONE_MORE, "expects other counts"),
    ("verdict", lambda _: "failed", "its verdict is failed, and its numbers say passed"),
    ("gates.3.passed", lambda _: False, "its gate prefill is failed"),
    ("gates.3.required", lambda _: "0.10", "its gate prefill is passed"),
    ("gates", lambda gates: gates[:4], "its gate decode is missing"),
    ("gates", lambda gates: gates[::-1], "its gate decode"),
]


@pytest.mark.parametrize(("path", "change", "reason"), INCONSISTENT)
def test_numbers_that_contradict_each_other_or_the_lock_are_refused_even_if_signed(
    layout: Layout, path: str, change: Callable[[Any], Any], reason: str
) -> None:
    found = changed(certification(the_lock(layout)), path, change)
    with pytest.raises(EvidenceError) as caught:
        verify_certification(signed(layout, found), "FILE", without_ledger(layout))
    assert reason in f"{caught.value.what}\n{caught.value.detail}"


def test_one_order_in_every_pair_is_refused(layout: Layout) -> None:
    found = certification(the_lock(layout))
    found = changed(found, "speed.pairs", lambda pairs: tuple(changed(pair, "first", lambda _: "whole") for pair in pairs))
    with pytest.raises(EvidenceError, match="came first in every pair"):
        verify_certification(signed(layout, found), "FILE", without_ledger(layout))


@pytest.mark.parametrize("failing", [{"differing": 1}, {"split_us": 13_000}])
def test_passed_with_numbers_that_fail_is_refused(layout: Layout, failing: dict[str, int]) -> None:
    found = certification(the_lock(layout), **failing)  # type: ignore[arg-type]
    found = msgspec.structs.replace(found, verdict="passed")
    with pytest.raises(EvidenceError, match="its verdict is passed, and its numbers say failed"):
        verify_certification(signed(layout, found), "FILE", without_ledger(layout))
