"""dgrctl.certify.decision"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dgrctl.certify.decision import contention, decider
from dgrctl.errors import CertificationVoid
from dgrctl.evidence.certification import SpeedPair
from dgrctl.evidence.lock import LockedSpeed, load_lock

LOCKS = Path(__file__).parents[3] / "certs" / "locks"
NONCE = "ab" * 16


def locked() -> LockedSpeed:
    return load_lock(LOCKS / "cpu.smollm2-135m.v3.toml").speed


def pairs(split_us: list[int], **more: object) -> list[SpeedPair]:
    """Pairs whose whole takes 1000 us."""
    fields: dict[str, object] = {"first": "whole", "load_1m": "0.50", "stolen_ppm": 0, "pressure_ppm": 80_000, **more}
    return [
        msgspec.convert(
            {**fields, "whole_prefill_us": 1000, "whole_decode_us": 1000, "split_prefill_us": us, "split_decode_us": us},
            SpeedPair,
        )
        for us in split_us
    ]


WILD = [700, 2000] * 30


def test_nothing_is_decided_between_the_looks() -> None:
    enough = decider(locked(), NONCE, identical=True)
    assert [number for number in range(1, 31) if enough(pairs([1000] * number))] == [15, 30]


def test_an_undecided_look_asks_for_more_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert not decider(locked(), NONCE, identical=True)(pairs(WILD[:15]))
    said = capsys.readouterr().err
    assert "undecided after 15 pairs" in said
    assert "bound 0.80" in said


@pytest.mark.parametrize(
    ("seen", "name", "words"),
    [
        ({"pressure_ppm": 80_000}, "undecided", "during 8 % of a pair's time"),
        ({"pressure_ppm": 490_000}, "interference", "during 49 % of a pair's time"),
        ({"pressure_ppm": None}, "undecided", "this kernel shows no pressure figures"),
        ({"pressure_ppm": None, "load_1m": "9000.00"}, "interference", "load average up to 9000.00"),
    ],
)
def test_undecided_at_the_last_look_is_void_by_name(seen: dict[str, object], name: str, words: str) -> None:
    with pytest.raises(CertificationVoid) as caught:
        decider(locked(), NONCE, identical=True)(pairs(WILD, **seen))
    assert caught.value.what.startswith(f"{name}: after 60 pairs")
    assert words in caught.value.what
    assert caught.value.remedy


def test_a_run_that_fails_for_its_bits_is_not_void() -> None:
    assert not decider(locked(), NONCE, identical=False)(pairs(WILD))


def test_a_throttled_pair_voids_the_run_at_once() -> None:
    with pytest.raises(CertificationVoid, match="throttling: a CPU quota stopped the processes in 3 periods"):
        decider(locked(), NONCE, identical=True)(pairs([1000], throttled_periods=3))


def test_a_machine_at_rest_shows_no_contention() -> None:
    assert contention(pairs([1000] * 15))[0] is False
