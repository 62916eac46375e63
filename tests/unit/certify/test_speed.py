"""dgrctl.certify.speed"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
from dgr.v1 import common_pb2, worker_pb2

from dgrctl.certify.speed import Generation, Sample, measure_pairs, speed_prompt
from dgrctl.errors import CertificationVoid, InputError
from dgrctl.evidence.certification import SpeedPair

SLICE = 8
TOKENS = 2 * SLICE + 4


class Side:
    """Answers with durations that count its generations, and writes down what it was allowed and when it ended."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self._generations = 0

    def __call__(self, prompt: common_pb2.Prompt, generate_tokens: int) -> Generation:
        assert list(prompt.tokens.ids) == [1, 2, 3]
        self._generations += 1
        base = {"whole": 1000, "split": 2000}[self._name] + self._generations
        end = finished(generated_tokens=generate_tokens, prefill_us=base, decode_us=10 * base)
        answers = self._answers(generate_tokens, end)
        return Generation(f"the {self._name}", answers, lambda tokens: self._note(str(tokens)), clock=seconds())

    def _answers(self, tokens: int, end: common_pb2.Finished) -> Generator[worker_pb2.GenerateResponse]:
        try:
            self._note("starts")
            yield from answers(tokens, end)
        finally:
            self._note("ended")

    def _note(self, what: str) -> None:
        self._log.append(f"{self._name} {what}")


def seconds() -> Callable[[], int]:
    """A clock on which a second passes between two looks."""
    return itertools.count(step=10**9).__next__


def finished(**changes: int) -> common_pb2.Finished:
    fields: dict[str, Any] = {
        "reason": common_pb2.FINISH_REASON_MAX_TOKENS,
        "prompt_tokens": 3,
        "generated_tokens": 2,
        "prefill_us": 70,
        "decode_us": 30,
        **changes,
    }
    return common_pb2.Finished(**fields)


def answers(tokens: int, end: common_pb2.Finished | None) -> Generator[worker_pb2.GenerateResponse]:
    yield worker_pb2.GenerateResponse(accepted=worker_pb2.Accepted(prompt_token_ids=[1, 2, 3]))
    for _ in range(tokens):
        yield worker_pb2.GenerateResponse(token=common_pb2.Token(id=7))
    if end is not None:
        yield worker_pb2.GenerateResponse(finished=end)


def test_pairs_keep_every_raw_sample_and_alternate_in_who_comes_first() -> None:
    log: list[str] = []
    told: list[int] = []
    sides = (Side("whole", log), Side("split", log))
    pairs = measure_pairs(sides, (1, 2, 3), TOKENS, decode_slice=SLICE, warmup=1, pairs=4, advance=lambda: told.append(len(log)))
    assert [pair.first for pair in pairs] == ["split", "whole", "split", "whole"]
    assert [(pair.whole_prefill_us, pair.split_prefill_us) for pair in pairs] == [(1000 + n, 2000 + n) for n in (2, 3, 4, 5)]
    assert [(pair.whole_decode_us, pair.split_decode_us) for pair in pairs] == [
        (10000 + 10 * n, 20000 + 10 * n) for n in (2, 3, 4, 5)
    ]
    assert all(pair.stolen_ppm >= 0 and float(pair.load_1m) >= 0 for pair in pairs)
    assert told == [len(log) // 5 * n for n in (1, 2, 3, 4, 5)]


def test_no_more_pairs_are_measured_than_enough() -> None:
    asked: list[int] = []

    def enough(measured: Sequence[SpeedPair]) -> bool:
        asked.append(len(measured))
        return len(measured) == 2

    sides = (Side("whole", []), Side("split", []))
    assert len(measure_pairs(sides, (1, 2, 3), TOKENS, decode_slice=SLICE, warmup=1, pairs=9, enough=enough)) == 2
    assert asked == [1, 2]


def test_the_halves_of_a_pair_take_turns() -> None:
    log: list[str] = []
    measure_pairs((Side("whole", log), Side("split", log)), (1, 2, 3), TOKENS, decode_slice=SLICE, warmup=0, pairs=2)
    of_a_pair = len(log) // 2
    for first, second, pair in (("whole", "split", log[:of_a_pair]), ("split", "whole", log[of_a_pair:])):
        assert pair[:-2] == [
            f"{first} starts",
            f"{second} starts",
            f"{first} {SLICE}",
            f"{second} {SLICE}",
            f"{second} {SLICE}",
            f"{first} {SLICE}",
            f"{first} 3",
            f"{second} 3",
        ]
        assert sorted(pair[-2:]) == ["split ended", "whole ended"]


def test_without_turns_each_half_decodes_in_one_piece() -> None:
    log: list[str] = []
    measure_pairs((Side("whole", log), Side("split", log)), (1, 2, 3), TOKENS, decode_slice=0, warmup=0, pairs=1)
    assert log[:-2] == ["whole starts", "split starts", f"whole {TOKENS - 1}", f"split {TOKENS - 1}"]


def test_both_halves_end_when_one_fails() -> None:
    log: list[str] = []

    def failing(prompt: common_pb2.Prompt, generate_tokens: int) -> Generation:
        del prompt, generate_tokens
        return Generation("the split", answers(2, None), lambda tokens: None, clock=seconds())

    with pytest.raises(CertificationVoid, match=rf"the split ended after 2 of {SLICE + 1} tokens"):
        measure_pairs((Side("whole", log), failing), (1, 2, 3), TOKENS, decode_slice=SLICE, warmup=0, pairs=1)
    assert log[-1] == "whole ended"


def test_a_half_reports_what_it_measured() -> None:
    half = Generation("the split", answers(2, finished(decode_us=1_000_000)), lambda tokens: None, clock=seconds())
    half.prefill()
    half.decode(1)
    assert half.finish(3, 2) == Sample(prefill_us=70, decode_us=1_000_000)


def test_a_half_that_decodes_outside_its_turns_measured_nothing() -> None:
    half = Generation("the split", answers(2, finished(decode_us=1_000_001)), lambda tokens: None, clock=seconds())
    half.prefill()
    half.decode(1)
    with pytest.raises(CertificationVoid, match="decoded for 1000001 us, and its turns took 1000000 us: it did not wait"):
        half.finish(3, 2)


@pytest.mark.parametrize(
    ("tokens", "end", "complaint"),
    [
        (2, None, "without a last message"),
        (1, finished(), "sent 1 tokens"),
        (3, finished(), "sent 3 tokens"),
        (2, finished(generated_tokens=1), "sent 2 tokens and says"),
        (2, finished(prompt_tokens=4), "sent 2 tokens and says"),
        (2, finished(reason=common_pb2.FINISH_REASON_END_OF_GENERATION), "sent 2 tokens and says"),
        (2, finished(prefill_us=0), "its clock does not move"),
        (2, finished(decode_us=0), "its clock does not move"),
    ],
)
def test_a_half_that_did_something_else_measured_nothing(tokens: int, end: common_pb2.Finished | None, complaint: str) -> None:
    half = Generation("the split", answers(tokens, end), lambda tokens: None, clock=seconds())
    half.prefill()
    with pytest.raises(CertificationVoid, match=complaint):
        half.finish(3, 2)


def test_speed_is_measured_on_the_beginning_of_the_longest_prompt() -> None:
    assert speed_prompt([(1, 2), (3, 4, 5, 6), (7,)], 3) == (3, 4, 5)


def test_no_prompt_long_enough_is_refused() -> None:
    with pytest.raises(InputError, match="the longest prompt has 2"):
        speed_prompt([(1, 2), (7,)], 3)
