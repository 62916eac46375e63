"""Ratios, intervals, totals and the verdict that follow from raw numbers."""

from __future__ import annotations

import hashlib
import math
import statistics

import msgspec
import pytest
from certifications import certification, changed, the_lock

from dgrctl.evidence.ratios import estimate, median, millionths
from dgrctl.evidence.totals import difference_string, largest
from dgrctl.evidence.verdict import gates_of, reasons
from dgrctl.layout import Layout

PAIRS = [(1000, 1010), (990, 1200), (1010, 1000), (1500, 1600), (980, 1100), (1000, 1000), (1020, 1300)]


def test_an_interval_can_be_repeated_from_its_definition() -> None:
    """The same arithmetic written down a second time, from the module's text."""
    ratios = [whole * 10**6 // split for whole, split in PAIRS]
    draws = (
        int.from_bytes(hashlib.sha256(f"seed:{i // 4}".encode()).digest()[8 * (i % 4) : 8 * (i % 4) + 8], "big") % 7
        for i in range(7 * 2000)
    )
    medians = sorted(sorted(ratios[next(draws)] for _ in range(7))[3] for _ in range(2000))
    found = estimate(PAIRS, confidence="0.95", resamples=2000, seed="seed")
    assert found.ratio == millionths(sorted(ratios)[3])
    assert (found.low, found.high) == (millionths(medians[50]), millionths(medians[1949]))
    assert (found.whole_median_us, found.split_median_us) == (1000, 1100)


def test_an_interval_depends_on_its_seed_only() -> None:
    one, again, other = (estimate(PAIRS, confidence="0.95", resamples=1000, seed=seed) for seed in ("a", "a", "b"))
    assert one == again
    assert (one.ratio, one.whole_median_us) == (other.ratio, other.whole_median_us)


def test_an_interval_encloses_its_median_and_grows_with_confidence() -> None:
    narrow, wide = (estimate(PAIRS, confidence=level, resamples=1000, seed="a") for level in ("0.50", "0.99"))
    assert float(wide.low) <= float(narrow.low) <= float(narrow.ratio) <= float(narrow.high) <= float(wide.high)


def test_equal_times_are_a_ratio_of_one() -> None:
    found = estimate([(100, 100)] * 5, confidence="0.95", resamples=1000, seed="a")
    assert (found.low, found.ratio, found.high) == ("1.000000",) * 3


@pytest.mark.parametrize("pairs", [[], [(0, 1)], [(1, 0)], [(-1, 5)]])
def test_nothing_measured_is_no_ratio(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="pairs of positive durations"):
        estimate(pairs, confidence="0.95", resamples=1000, seed="a")


@pytest.mark.parametrize("values", [[5], [3, 1], [4, 2, 9], [8, 1, 2, 3], list(range(100))])
def test_the_median_is_the_median_rounded_down(values: list[int]) -> None:
    assert median(values) == math.floor(statistics.median(values))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.5, "0.5"),
        (1.25e-7, "0.000000125"),
        (2.0**-149, "0." + "0" * 44 + "140129846"),
        (3.4028234663852886e38, "340282347" + "0" * 30),
        (math.inf, "infinite"),
        (math.nan, "infinite"),
    ],
)
def test_differences_are_plain_decimals(value: float, text: str) -> None:
    assert difference_string(value) == text


def test_the_largest_difference_is_by_value_not_by_text() -> None:
    assert largest(["9", "10", "0.5"]) == "10"
    assert largest(["0.000001", "0"]) == "0.000001"
    assert largest(["1", "infinite", "99"]) == "infinite"
    assert largest([]) == "0"


class TestVerdict:
    """One failing number at a time."""

    def test_passing_numbers_have_no_reason_against_them(self, layout: Layout) -> None:
        found = certification(the_lock(layout))
        assert all(gate.passed for gate in gates_of(found.parity, found.speed, the_lock(layout).speed))

    @pytest.mark.parametrize(
        ("field", "reason"),
        [
            ("logits_differing", "1 of 4300 logits differ"),
            ("boundary_values_differing", "1 of 528 boundary values differ"),
            ("tokens_differing", "1 of 20 chosen tokens differ"),
        ],
    )
    def test_one_differing_value_fails(self, layout: Layout, field: str, reason: str) -> None:
        found = changed(certification(the_lock(layout)), f"parity.totals.{field}", lambda _: 1)
        found = msgspec.structs.replace(found, gates=gates_of(found.parity, found.speed, the_lock(layout).speed))
        (said,) = reasons(found)
        assert reason in said

    @pytest.mark.parametrize("phase", ["prefill", "decode"])
    @pytest.mark.parametrize(("low", "fails"), [("0.799999", True), ("0.800000", False)])
    def test_the_lower_bound_decides(self, layout: Layout, phase: str, low: str, fails: bool) -> None:
        found = changed(certification(the_lock(layout)), f"speed.{phase}.low", lambda _: low)
        gates = gates_of(found.parity, found.speed, the_lock(layout).speed)
        assert [gate.id for gate in gates if not gate.passed] == ([phase] if fails else [])

    def test_a_good_median_with_a_bad_lower_bound_fails(self, layout: Layout) -> None:
        found = certification(the_lock(layout))
        spread = msgspec.structs.replace(found.speed.decode, ratio="1.500000", low="0.700000", high="2.000000")
        found = changed(found, "speed.decode", lambda _: spread)
        assert [gate.id for gate in gates_of(found.parity, found.speed, the_lock(layout).speed) if not gate.passed] == ["decode"]
