"""dgrctl.certify.parity: it passes what agrees, and finds every way to disagree or to have compared too little."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dgr.v1 import common_pb2, reference_pb2
from recorded import CUTS, PROMPT, VOCABULARY, WIDTH, Recorded, flip_a_bit, record

from dgrctl.certify.bits import Tally
from dgrctl.certify.parity import CachedOracle
from dgrctl.certify.plan import OutputMode
from dgrctl.errors import CertificationVoid

BOTH = pytest.mark.parametrize("mode", list(OutputMode))


@BOTH
def test_equal_runs_are_identical_and_counted(tmp_path: Path, mode: OutputMode) -> None:
    run = record(mode)
    found = run.compare(tmp_path)
    rows = {OutputMode.ALL: len(PROMPT) + 2, OutputMode.LAST: 3}[mode]
    assert found.identical
    assert found.logits == Tally(rows=rows, compared=rows * VOCABULARY)
    assert found.boundaries == dict.fromkeys(CUTS, Tally(rows=11, compared=11 * WIDTH))
    assert (found.tokens_compared, found.tokens_differing, found.greedy_differing) == (3, 0, 0)


def test_the_reference_replays_the_recorded_calls_with_every_cut(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    run.compare(tmp_path)
    assert run.asked == [(tuple(run.calls[0]), CUTS)]


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_one_flipped_bit_of_a_logit_fails(tmp_path: Path, mode: OutputMode, seed: int) -> None:
    run = record(mode)
    flip_a_bit(run.logits, seed)
    found = run.compare(tmp_path)
    assert not found.identical
    assert found.logits.differing == 1
    assert found.logits.max_abs_difference > 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cut", CUTS)
def test_one_flipped_bit_of_a_boundary_fails_at_its_cut(tmp_path: Path, cut: int, seed: int) -> None:
    run = record(OutputMode.LAST)
    flip_a_bit(run.boundaries[cut], seed)
    found = run.compare(tmp_path)
    assert not found.identical
    assert {cut: tally.differing for cut, tally in found.boundaries.items()} == {c: int(c == cut) for c in CUTS}


def test_nan_on_both_sides_fails(tmp_path: Path) -> None:
    run = record(OutputMode.LAST)
    run.logits[0, 3] = math.nan
    block = next(response.logits for response in run.responses if response.WhichOneof("message") == "logits")
    values = np.frombuffer(block.values, dtype="<f4").copy()
    values[3] = math.nan
    block.values = values.tobytes()
    found = run.compare(tmp_path)
    assert not found.identical
    assert (found.logits.not_finite, found.logits.max_abs_difference) == (1, math.inf)


def test_a_token_that_is_not_the_reference_s_choice_fails(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    run.sampled[-1] = (run.sampled[-1] + 1) % VOCABULARY  # never fed back, so the calls are the planned ones all the same
    found = run.compare(tmp_path)
    assert not found.identical
    assert (found.tokens_differing, found.greedy_differing, found.logits.differing) == (1, 0, 0)


def test_a_changed_largest_logit_is_told_apart_from_a_changed_bit(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    run.logits[4, run.logits[4].argmin()] = 100.0
    assert run.compare(tmp_path).greedy_differing == 1


def truncate_logits(run: Recorded) -> None:
    run.logits = run.logits[:-1]


def repeat_logits(run: Recorded) -> None:
    run.logits = np.concatenate([run.logits, run.logits[-1:]])


def no_logits(run: Recorded) -> None:
    run.logits = run.logits[:0]


def truncate_boundary(run: Recorded) -> None:
    run.boundaries[CUTS[1]] = run.boundaries[CUTS[1]][1:]


def repeat_boundary(run: Recorded) -> None:
    run.boundaries[CUTS[0]] = np.concatenate([run.boundaries[CUTS[0]]] * 2)


def lose_a_cut(run: Recorded) -> None:
    del run.boundaries[CUTS[0]]


def other_tokenization(run: Recorded) -> None:
    run.prompt_tokens = PROMPT[:-1]


def lose_a_token(run: Recorded) -> None:
    del run.sampled[-1]


def one_token_more(run: Recorded) -> None:
    run.sampled.append(0)


def lose_a_call(run: Recorded) -> None:
    del run.calls[1][2]


def lose_all_calls(run: Recorded) -> None:
    run.calls = [[] for _ in run.calls]


def one_call_more(run: Recorded) -> None:
    run.calls[0].append(run.calls[0][-1])


def lose_a_stage(run: Recorded) -> None:
    del run.calls[2]


def shift_positions(run: Recorded) -> None:
    run.calls[1][1].sequences[0].positions[0] += 1


def other_chunking(run: Recorded) -> None:
    for calls in run.calls:
        rows = calls[0].sequences[0]
        del rows.positions[-1]
        del rows.token_ids[-1]


def other_outputs(run: Recorded) -> None:
    run.calls[2][0].sequences[0].outputs = common_pb2.OUTPUT_ROWS_NONE


def other_phase(run: Recorded) -> None:
    run.calls[0][3].phase = common_pb2.PHASE_PREFILL


def other_token_fed_back(run: Recorded) -> None:
    run.calls[0][3].sequences[0].token_ids[0] += 1


def move_between_slots(run: Recorded) -> None:
    run.calls[1][2].sequences[0].slot = 1


def share_the_call(run: Recorded) -> None:
    run.calls[0][0].sequences.append(run.calls[0][0].sequences[0])


def empty_call(run: Recorded) -> None:
    del run.calls[1][0].sequences[:]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (truncate_logits, "10 rows of logits reached the client instead of 11"),
        (repeat_logits, "12 rows of logits"),
        (no_logits, "0 rows of logits"),
        (truncate_boundary, "10 rows crossed the cut at layer 5 instead of 11"),
        (repeat_boundary, "22 rows crossed the cut at layer 2"),
        (lose_a_cut, "1 cuts instead of 2"),
        (other_tokenization, "other tokens than the reference"),
        (lose_a_token, "2 tokens were sampled instead of 3"),
        (one_token_more, "4 tokens were sampled instead of 3"),
        (lose_a_call, "stage 1 made 4 decode calls instead of 5"),
        (lose_all_calls, "stage 0 made 0 decode calls instead of 5"),
        (one_call_more, "stage 0 made 6 decode calls instead of 5"),
        (lose_a_stage, "2 stages were recorded instead of 3"),
        (shift_positions, "stage 1, decode call 1: positions"),
        (other_chunking, "stage 0, decode call 0: positions 0…2"),
        (other_outputs, "stage 2, decode call 0: output rows"),
        (other_phase, "stage 0, decode call 3: phase"),
        (other_token_fed_back, "stage 0, decode call 3: 1 token ids that are not"),
        (move_between_slots, "stage 1 moved the session between slots [0, 1]"),
        (share_the_call, "stage 0, decode call 0: 2 sessions were in it"),
        (empty_call, "stage 1, decode call 0: 0 sessions were in it"),
    ],
)
def test_a_run_that_did_not_do_what_was_planned_is_void(
    tmp_path: Path, spoil: Callable[[Recorded], None], complaint: str
) -> None:
    run = record(OutputMode.ALL)
    spoil(run)
    with pytest.raises(CertificationVoid) as caught:
        run.compare(tmp_path)
    assert complaint in (caught.value.detail or "")
    assert run.asked == []


def test_stages_that_never_learn_token_ids_record_none(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    run.boundary_token_ids = False
    for calls in run.calls[1:]:
        for call in calls:
            del call.sequences[0].token_ids[:]
    assert run.compare(tmp_path).identical


def test_stages_that_never_learn_token_ids_may_not_have_any(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    run.boundary_token_ids = False
    with pytest.raises(CertificationVoid) as caught:
        run.compare(tmp_path)
    assert "stage 1, decode call 0: 4 token ids that are not the 0 planned" in (caught.value.detail or "")


def test_stages_that_must_learn_token_ids_may_not_lack_any(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    del run.calls[2][1].sequences[0].token_ids[:]
    with pytest.raises(CertificationVoid) as caught:
        run.compare(tmp_path)
    assert "stage 2, decode call 1: 0 token ids that are not the 4 planned" in (caught.value.detail or "")


def test_the_head_must_record_its_token_ids(tmp_path: Path) -> None:
    run = record(OutputMode.ALL)
    del run.calls[0][0].sequences[0].token_ids[:]
    with pytest.raises(CertificationVoid):
        run.compare(tmp_path)


def residuals(run: Recorded) -> list[reference_pb2.ReplayResponse]:
    return [response for response in run.responses if response.WhichOneof("message") == "residual"]


def logits(run: Recorded) -> list[reference_pb2.ReplayResponse]:
    return [response for response in run.responses if response.WhichOneof("message") == "logits"]


def answer_nothing(run: Recorded) -> None:
    run.responses.clear()


def answer_no_logits(run: Recorded) -> None:
    run.responses[:] = residuals(run)


def answer_no_residual(run: Recorded) -> None:
    run.responses[:] = logits(run)


def lose_the_last_residual(run: Recorded) -> None:
    run.responses.remove(residuals(run)[-1])


def repeat_a_residual(run: Recorded) -> None:
    run.responses.insert(1, run.responses[0])


def repeat_the_last_logits(run: Recorded) -> None:
    run.responses.append(logits(run)[-1])


def skip_logits(run: Recorded) -> None:
    run.responses.remove(logits(run)[0])


def swap_residuals(run: Recorded) -> None:
    run.responses[0], run.responses[1] = run.responses[1], run.responses[0]


def unknown_cut(run: Recorded) -> None:
    residuals(run)[0].residual.cut = 3


def unknown_call(run: Recorded) -> None:
    run.responses[-1].call_index = 5


def other_call(run: Recorded) -> None:
    residuals(run)[-1].call_index = 0


def narrow_residual(run: Recorded) -> None:
    residuals(run)[0].residual.width = 2


def narrow_logits(run: Recorded) -> None:
    logits(run)[0].logits.vocabulary = VOCABULARY - 1


def short_residual(run: Recorded) -> None:
    block = residuals(run)[0].residual
    block.values = block.values[:-4]


def short_logits(run: Recorded) -> None:
    block = logits(run)[0].logits
    block.values = block.values + bytes(4)


def no_rows(run: Recorded) -> None:
    block = residuals(run)[0].residual
    block.rows, block.values = 0, b""


def empty_message(run: Recorded) -> None:
    run.responses.insert(0, reference_pb2.ReplayResponse())


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (answer_nothing, "sent 0 rows of logits instead of 11"),
        (answer_no_logits, "0 tokens were compared instead of 3"),
        (answer_no_residual, "sent 0 rows at the cut at layer 2 instead of 11"),
        (lose_the_last_residual, "sent 10 rows at the cut at layer 5"),
        (repeat_a_residual, "sent row 0 at the cut at layer 2 where row 3 is due"),
        (repeat_the_last_logits, "where 11 is due"),
        (skip_logits, "where 0 is due"),
        (swap_residuals, "sent row 3 at the cut at layer 2 where row 0 is due"),
        (unknown_cut, "which is not a cut of this route"),
        (unknown_call, "which was not asked for"),
        (other_call, "where row 10 is due"),
        (narrow_residual, "2 x 2 values, the route's 6"),
        (narrow_logits, "10 wide, the route's 11"),
        (short_residual, "bytes for 3 rows of 6 values"),
        (short_logits, "bytes for 4 rows of 11 values"),
        (no_rows, "0 bytes for 0 rows"),
        (empty_message, "empty message"),
    ],
)
def test_a_reference_that_answers_too_little_or_something_else_voids_the_run(
    tmp_path: Path, spoil: Callable[[Recorded], None], complaint: str
) -> None:
    run = record(OutputMode.ALL)
    spoil(run)
    with pytest.raises(CertificationVoid) as caught:
        run.compare(tmp_path)
    assert complaint in (caught.value.detail or "")


def test_a_cached_oracle_asks_once_for_the_same_calls_and_again_for_others() -> None:
    run = record(OutputMode.ALL)
    oracle = CachedOracle(run, CUTS)
    some = list(oracle.replay(run.calls[0], CUTS[1:]))
    assert {response.residual.cut for response in some if response.HasField("residual")} == {CUTS[1]}
    assert [response for response in some if response.HasField("logits")] == logits(run)
    assert list(oracle.replay(run.calls[0], CUTS)) == run.responses
    assert len(run.asked) == 1
    list(oracle.replay(run.calls[0][1:], CUTS))
    assert len(run.asked) == 2


def test_a_cached_oracle_refuses_a_cut_that_it_did_not_ask_for() -> None:
    run = record(OutputMode.ALL)
    with pytest.raises(ValueError, match="not among the recorded"):
        list(CachedOracle(run, CUTS[1:]).replay(run.calls[0], CUTS))
