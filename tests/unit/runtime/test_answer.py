"""Assembling an answer from a generation's messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dgr.v1 import common_pb2, worker_pb2

from dgrctl.errors import StageError
from dgrctl.runtime.answer import Answer, collect


def generation(pieces: Sequence[bytes], reason: common_pb2.FinishReason | None) -> list[worker_pb2.GenerateResponse]:
    responses = [worker_pb2.GenerateResponse(accepted=worker_pb2.Accepted(prompt_token_ids=[1, 2]))]
    for index, piece in enumerate(pieces):
        token = common_pb2.Token(id=100 + index, position=2 + index, piece=piece)
        responses.append(worker_pb2.GenerateResponse(token=token))
    if reason is not None:
        finished = common_pb2.Finished(reason=reason, prefill_us=50_000, decode_us=200_000, generated_tokens=len(pieces))
        responses.append(worker_pb2.GenerateResponse(finished=finished))
    return responses


def collected(pieces: Sequence[bytes], reason: common_pb2.FinishReason | None) -> tuple[Answer, list[str]]:
    said: list[str] = []
    return collect(generation(pieces, reason), said.append), said


def test_text_numbers_and_reason() -> None:
    answer, said = collected([b"Hel", b"lo", b"!"], common_pb2.FINISH_REASON_MAX_TOKENS)
    assert said == ["Hel", "lo", "!"]
    document = answer.as_dict()
    assert document["text"] == "Hello!"
    assert document["token_ids"] == [100, 101, 102]
    assert document["prompt_token_ids"] == [1, 2]
    assert document["finish_reason"] == "max_tokens"
    assert document["tokens_per_second"] == 10.0
    assert "10.0 tokens/s" in answer.summary()


def test_a_character_cut_by_tokens_comes_whole() -> None:
    llama = "🦙".encode()
    answer, said = collected([b"a", llama[:1], llama[1:3], llama[3:] + b"b"], common_pb2.FINISH_REASON_MAX_TOKENS)
    assert said == ["a", "🦙b"]
    assert answer.text == "a🦙b"


def test_bytes_that_never_become_a_character_are_shown_as_such() -> None:
    answer, _ = collected([b"a\xff", b"b"], common_pb2.FINISH_REASON_END_OF_GENERATION)
    assert answer.text == "a\N{REPLACEMENT CHARACTER}b"
    assert answer.finish_reason == "end_of_generation"
    assert answer.as_dict()["unfinished_character"] is None


@pytest.mark.parametrize("length", [1, 2, 3])
def test_an_answer_that_is_cut_inside_a_character_invents_nothing(length: int) -> None:
    cut = "🦙".encode()[:length]
    answer, said = collected([b"a", cut], common_pb2.FINISH_REASON_MAX_TOKENS)
    assert (answer.text, said) == ("a", ["a"])
    assert answer.as_dict()["unfinished_character"] == cut.hex()
    assert f"unfinished character at the end left out (bytes {cut.hex(' ')})" in answer.summary()


def test_one_token_or_none_has_no_decode_speed() -> None:
    for pieces in ([], [b"a"]):
        answer, _ = collected(pieces, common_pb2.FINISH_REASON_END_OF_GENERATION)
        assert answer.tokens_per_second is None
        assert "tokens/s" not in answer.summary()
    assert collected([], common_pb2.FINISH_REASON_END_OF_GENERATION)[0].time_to_first_token_us is None


def test_an_end_without_a_last_message_is_a_failure() -> None:
    with pytest.raises(StageError, match="ended without a reason"):
        collected([b"a"], None)
