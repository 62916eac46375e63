"""dgrctl.certify.speed"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dgr.v1 import common_pb2, worker_pb2

from dgrctl.certify import speed
from dgrctl.certify.speed import Sample, measure_pairs, speed_prompt
from dgrctl.errors import CertificationVoid, InputError

PROMPT = common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=[1, 2, 3]))


class Side:
    """Answers with durations that count its calls, and tells in which order it was asked."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order
        self._calls = 0

    def __call__(self, prompt: common_pb2.Prompt, generate_tokens: int) -> Sample:
        assert (list(prompt.tokens.ids), generate_tokens) == ([1, 2, 3], 5)
        self._order.append(self._name)
        self._calls += 1
        base = {"whole": 1000, "split": 2000}[self._name]
        return Sample(prefill_us=base + self._calls, decode_us=10 * (base + self._calls))


def test_pairs_alternate_in_order_and_keep_every_raw_sample() -> None:
    order: list[str] = []
    told: list[int] = []
    pairs = measure_pairs(
        (Side("whole", order), Side("split", order)), (1, 2, 3), 5, warmup=1, pairs=4, advance=lambda: told.append(len(order))
    )
    assert order == ["whole", "split", "split", "whole", "whole", "split", "split", "whole", "whole", "split"]
    assert told == [2, 4, 6, 8, 10]
    assert [pair.first for pair in pairs] == ["split", "whole", "split", "whole"]
    assert [(pair.whole_prefill_us, pair.split_prefill_us) for pair in pairs] == [(1000 + n, 2000 + n) for n in (2, 3, 4, 5)]
    assert [(pair.whole_decode_us, pair.split_decode_us) for pair in pairs] == [
        (10000 + 10 * n, 20000 + 10 * n) for n in (2, 3, 4, 5)
    ]
    assert all(pair.stolen_ppm >= 0 and float(pair.load_1m) >= 0 for pair in pairs)


def finished(**changes: int) -> common_pb2.Finished:
    fields: dict[str, int] = {
        "reason": common_pb2.FINISH_REASON_MAX_TOKENS,
        "prompt_tokens": 3,
        "generated_tokens": 2,
        "prefill_us": 70,
        "decode_us": 30,
        **changes,
    }
    return common_pb2.Finished(**fields)


class Route:
    """A route that answers with these messages."""

    def __init__(self, tokens: int, end: common_pb2.Finished | None) -> None:
        self._tokens = tokens
        self._end = end

    def generate(self, prompt: common_pb2.Prompt, **asked: object) -> Iterator[worker_pb2.GenerateResponse]:
        assert asked == {"max_tokens": 2, "ignore_end_of_generation": True}
        yield worker_pb2.GenerateResponse(accepted=worker_pb2.Accepted(prompt_token_ids=prompt.tokens.ids))
        for _ in range(self._tokens):
            yield worker_pb2.GenerateResponse(token=common_pb2.Token(id=7))
        if self._end is not None:
            yield worker_pb2.GenerateResponse(finished=self._end)


def test_a_side_reports_what_it_measured() -> None:
    assert speed.split(Route(2, finished()))(PROMPT, 2) == Sample(prefill_us=70, decode_us=30)  # type: ignore[arg-type]


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
def test_a_side_that_did_something_else_measured_nothing(tokens: int, end: common_pb2.Finished | None, complaint: str) -> None:
    with pytest.raises(CertificationVoid, match=complaint):
        speed.split(Route(tokens, end))(PROMPT, 2)  # type: ignore[arg-type]


def test_speed_is_measured_on_the_beginning_of_the_longest_prompt() -> None:
    assert speed_prompt([(1, 2), (3, 4, 5, 6), (7,)], 3) == (3, 4, 5)


def test_no_prompt_long_enough_is_refused() -> None:
    with pytest.raises(InputError, match="the longest prompt has 2"):
        speed_prompt([(1, 2), (7,)], 3)
