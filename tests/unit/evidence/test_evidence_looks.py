"""When a speed measurement is decided, and how often that is wrong."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from certifications import LOCK, certification, changed, signed, speed_of

from dgrctl.errors import EvidenceError, InputError
from dgrctl.evidence.certification import Certification, SpeedPair
from dgrctl.evidence.lock import Lock, LockedSpeed, load_lock
from dgrctl.evidence.looks import estimates, pairs_demanded, standing
from dgrctl.evidence.matrix_file import gather_context
from dgrctl.evidence.ratios import exact_interval
from dgrctl.evidence.trust import local_trust
from dgrctl.evidence.verify import verify_certification
from dgrctl.layout import Layout

CHECKED_IN = Path(__file__).parents[3] / "certs" / "locks"
NONCE = "ab" * 16
LOOKS_LOCK = (
    LOCK.replace("version = 1", "version = 2")
    .replace("pairs = 7", "looks = [15, 30, 60]")
    .replace("bootstrap_resamples = 1000\n", "")
)


def locked(version: int = 3) -> LockedSpeed:
    return load_lock(CHECKED_IN / f"cpu.smollm2-135m.v{version}.toml").speed


def pairs_of(ratios: list[float], decode: list[float] | None = None) -> tuple[SpeedPair, ...]:
    """Pairs whose whole takes a second and whose ratios are these."""
    return tuple(
        SpeedPair(
            first="whole" if number % 2 else "split",
            load_1m="1.00",
            stolen_ppm=0,
            whole_prefill_us=1_000_000,
            whole_decode_us=1_000_000,
            split_prefill_us=round(1_000_000 / prefill),
            split_decode_us=round(1_000_000 / after),
        )
        for number, (prefill, after) in enumerate(zip(ratios, decode or ratios, strict=True))
    )


def noisy(true_ratio: float, noise: float, seed: int, count: int = 60) -> list[float]:
    """Ratios whose median is ``true_ratio``; ``noise`` is the standard deviation of their logarithms."""
    source = random.Random(seed)
    return [true_ratio * math.exp(source.gauss(0, noise)) for _ in range(count)]


def outcome(true_ratio: float, noise: float, seed: int) -> str:
    """How a measurement ends: above, below, or undecided."""
    speed = locked()
    pairs = pairs_of(noisy(true_ratio, noise, seed), [1.0] * 60)
    taken = pairs_demanded(pairs, speed, NONCE)
    return standing(pairs[:taken], speed, NONCE)


def places(count: int, miss: Fraction) -> int:
    """The place of the lower bound in order, found on the numbers 1 … count."""
    return exact_interval(list(range(1, count + 1)), miss)[0]


def test_an_exact_interval_is_the_one_of_the_published_table() -> None:
    """Ranks of the 95 percent interval of a median, as tables of the binomial distribution give them."""
    for count, (low, high) in {6: (1, 6), 10: (2, 9), 15: (4, 12), 20: (6, 15), 30: (10, 21), 50: (18, 33)}.items():
        assert exact_interval(list(range(1, count + 1)), Fraction(1, 40)) == (low, high)


def test_an_exact_interval_misses_no_more_often_than_it_says() -> None:
    for count in (15, 30, 60):
        place, miss = places(count, locked().miss), locked().miss
        assert Fraction(sum(math.comb(count, i) for i in range(place)), 2**count) <= miss
        assert Fraction(sum(math.comb(count, i) for i in range(place + 1)), 2**count) > miss


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="have no interval"):
        exact_interval([1, 2, 3], Fraction(1, 40))


def test_looking_three_times_errs_in_no_more_than_one_run_of_forty() -> None:
    """The exact chance that a split right at its bound is called above it, over all looks: the number of ratios below the bound
    is a random walk, and the walk is followed step by step."""
    speed = locked()
    walks, wrong = {0: Fraction(1)}, Fraction(0)
    for taken in range(1, speed.schedule[-1] + 1):
        following: dict[int, Fraction] = {}
        for below, chance in walks.items():
            for step in (0, 1):
                following[below + step] = following.get(below + step, Fraction(0)) + chance / 2
        if taken in speed.schedule:
            place = places(taken, speed.miss)
            # Above: the ratio at that place lies above the bound, so fewer ratios lie below. Below: the same from the other end.
            wrong += sum(chance for below, chance in following.items() if below < place)
            following = {below: chance for below, chance in following.items() if place <= below <= taken - place}
        walks = following
    assert Fraction(1, 100) < wrong <= Fraction(1, 40)
    # Without its share for each look, the same schedule would err more often than its confidence says.
    assert sum(sum(math.comb(n, i) for i in range(places(n, Fraction(1, 40)))) / 2**n for n in speed.schedule) > 1 / 40


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_five_percent_below_the_bound_fails_on_a_machine_at_rest(noise: float) -> None:
    assert {outcome(0.80 * 0.95, noise, seed) for seed in range(40)} == {"below"}


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_five_percent_above_the_bound_passes_on_a_machine_at_rest(noise: float) -> None:
    assert {outcome(0.80 * 1.05, noise, seed) for seed in range(40)} == {"above"}


def test_five_percent_below_the_bound_does_not_pass_beside_a_busy_neighbour() -> None:
    ends = [outcome(0.80 * 0.95, 0.4, seed) for seed in range(200)]
    assert ends.count("above") <= 5  # one in forty


def test_a_split_as_fast_as_the_whole_does_not_fail_beside_a_busy_neighbour() -> None:
    ends = [outcome(1.0, 0.4, seed) for seed in range(200)]
    assert ends.count("below") <= 5
    assert ends.count("above") > 100


def test_an_interval_that_holds_the_bound_was_a_failure_and_is_undecided_now() -> None:
    """The figures of a run beside a load of 10 on 2 processors: decode 1.19 (0.73 … 1.89) against a bound of 0.80."""
    seen = [0.55, 0.62, 0.70, 0.73, 0.88, 0.97, 1.10, 1.19, 1.25, 1.40, 1.62, 1.89, 1.95, 2.10, 2.40]
    pairs = pairs_of([1.0] * 15, seen)
    _, decode = estimates(pairs, locked(2), NONCE)
    assert [round(float(value), 2) for value in (decode.low, decode.ratio, decode.high)] == [0.73, 1.19, 1.89]
    assert standing(pairs, locked(2), NONCE) == "below"
    assert standing(pairs, locked(3), NONCE) == "undecided"


def test_a_measurement_ends_at_the_first_look_that_decides() -> None:
    speed = locked()
    quiet, wild = [1.0] * 60, [0.5, 1.5] * 30
    assert pairs_demanded(pairs_of(quiet), speed, NONCE) == 15
    assert pairs_demanded(pairs_of([*wild[:15], *quiet[15:]]), speed, NONCE) == 30
    assert pairs_demanded(pairs_of([*wild[:30], *quiet[30:]]), speed, NONCE) == 60
    assert standing(pairs_of(wild), speed, NONCE) == "undecided"
    assert pairs_demanded(pairs_of(wild), speed, NONCE) == 60
    assert pairs_demanded(pairs_of(wild[:20]), speed, NONCE) == 30


def test_one_phase_below_its_bound_is_enough_to_fail() -> None:
    assert standing(pairs_of([1.0] * 15, [0.7] * 15), locked(), NONCE) == "below"
    assert standing(pairs_of([0.7] * 15, [0.5, 1.5] * 7 + [1.0]), locked(), NONCE) == "below"


def test_the_third_lock_demands_what_the_second_did() -> None:
    second, third = (load_lock(CHECKED_IN / f"cpu.smollm2-135m.v{version}.toml") for version in (2, 3))
    assert (third.speed.looks, third.speed.pairs, third.speed.bootstrap_resamples) == ((15, 30, 60), 0, 0)
    old_rule = {"pairs": 15, "bootstrap_resamples": 2000, "looks": ()}
    assert msgspec.structs.replace(third.speed, **old_rule) == second.speed
    assert (third.parity, third.prompt_set) == (second.parity, second.prompt_set)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("looks = [15, 30, 60]", "looks = []", "either pairs and bootstrap_resamples, or looks"),
        ("looks = [15, 30, 60]", "looks = [15, 30, 60]\npairs = 15", "either pairs and bootstrap_resamples, or looks"),
        ("looks = [15, 30, 60]", "pairs = 15", "either pairs and bootstrap_resamples, or looks"),
        ("looks = [15, 30, 60]", "looks = [30, 15]", "the looks do not rise"),
        ("looks = [15, 30, 60]", "looks = [15, 15]", "the looks do not rise"),
        ("looks = [15, 30, 60]", "looks = [6, 30, 60]", "6 pairs are too few"),
        ("looks = [15, 30, 60]", "looks = [4, 30]", "looks"),
    ],
)
def test_looks_that_decide_nothing_are_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    assert before in LOOKS_LOCK
    path = tmp_path / "cpu.tiny.v2.toml"
    path.write_text(LOOKS_LOCK.replace(before, after, 1))
    with pytest.raises(InputError) as caught:
        load_lock(path)
    assert words in f"{caught.value.what} {caught.value.where}"
    assert caught.value.remedy


@pytest.fixture
def looks_lock(layout: Layout) -> Lock:
    path = layout.certs / "locks" / "cpu.tiny.v2.toml"
    path.write_text(LOOKS_LOCK)
    return load_lock(path)


def measured(lock: Lock, ratios: list[float], **more: Any) -> Certification:
    return certification(lock, nonce=NONCE, speed=speed_of(lock, NONCE, pairs_of(ratios)), **more)


def verified(layout: Layout, found: Certification) -> None:
    data = signed(layout, found)
    verify_certification(data, "FILE", dataclasses.replace(gather_context(layout, local_trust(layout)), ledger=None))


WILD = [0.5, 1.5] * 30


@pytest.mark.parametrize(
    ("ratios", "verdict"), [([1.0] * 15, "passed"), ([0.76] * 15, "failed"), (WILD[:15] + [1.0] * 15, "passed")]
)
def test_evidence_that_ends_where_the_lock_says_verifies(
    layout: Layout, looks_lock: Lock, ratios: list[float], verdict: str
) -> None:
    found = measured(looks_lock, ratios)
    assert found.verdict == verdict
    verified(layout, found)


@pytest.mark.parametrize(
    ("ratios", "reason"),
    [
        ([1.0] * 16, "with pairs 16; the lock demands 15"),
        ([1.0] * 30, "with pairs 30; the lock demands 15"),
        ([0.76] * 15 + [1.5] * 15, "with pairs 30; the lock demands 15"),  # went on although it had failed
        ([*WILD[:15], *[1.0] * 5], "with pairs 20; the lock demands 30"),  # ended when it liked the result
        (WILD, "its speed is undecided"),
    ],
)
def test_evidence_that_ends_elsewhere_is_refused(layout: Layout, looks_lock: Lock, ratios: list[float], reason: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        verified(layout, measured(looks_lock, ratios))
    assert reason in f"{caught.value.what}\n{caught.value.detail}"


def test_a_run_whose_bits_differ_fails_even_where_its_speed_is_undecided(layout: Layout, looks_lock: Lock) -> None:
    found = measured(looks_lock, WILD, differing=1)
    assert found.verdict == "failed"
    verified(layout, found)


def test_a_throttled_pair_makes_evidence_void(layout: Layout, looks_lock: Lock) -> None:
    throttled: Callable[[Any], int] = lambda _: 2  # noqa: E731
    found = changed(measured(looks_lock, [1.0] * 15), "speed.pairs.3.throttled_periods", throttled)
    with pytest.raises(EvidenceError) as caught:
        verified(layout, found)
    assert "a CPU quota throttled it in 2 periods" in f"{caught.value.what}\n{caught.value.detail}"
