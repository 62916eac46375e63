"""What one prompt must produce, counted before it runs.

An evaluator that compares nothing finds no difference. So every count that parity rests on (decode calls, rows of logits, rows
at each cut, sampled tokens) follows from the prompt's tokens and the lock, and what was compared must reach it exactly.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from dgr.v1 import common_pb2

DecodeCall = common_pb2.DecodeCall


class OutputMode(enum.Enum):
    """Which positions give logits. It is part of the composition: with LAST the final layer works on fewer rows."""

    ALL = "all"
    LAST = "last"

    @property
    def wire(self) -> common_pb2.OutputRows:
        return common_pb2.OUTPUT_ROWS_ALL if self is OutputMode.ALL else common_pb2.OUTPUT_ROWS_LAST


@dataclass(frozen=True)
class PromptPlan:
    """One prompt in one output mode, alone on its route.

    Args:
        tokens: As the reference's tokenizer gives them.
        decode_steps: Calls of one row after the prefill; each feeds back a token that was sampled before.
        ubatch: The most rows of one decode call.
        stage_count: Stages of the route; one cut fewer.
    """

    prompt_id: str
    mode: OutputMode
    tokens: tuple[int, ...]
    decode_steps: int
    ubatch: int
    stage_count: int

    @property
    def positions(self) -> int:
        """Positions that are computed: the prompt's and one for each decode step."""
        return len(self.tokens) + self.decode_steps

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled: one after the prefill and one after each decode step."""
        return self.decode_steps + 1

    @property
    def first_logits_position(self) -> int:
        return 0 if self.mode is OutputMode.ALL else len(self.tokens) - 1

    @property
    def logits_rows(self) -> int:
        """Rows of logits; their positions are contiguous up to the last position in both modes."""
        return self.positions - self.first_logits_position

    def calls(self, sampled: Sequence[int]) -> list[DecodeCall]:
        """The decode calls that every stage must have made, given the tokens that were sampled; the slot is left at 0."""
        calls = []
        for begin in range(0, len(self.tokens), self.ubatch):
            end = min(begin + self.ubatch, len(self.tokens))
            outputs = self.mode.wire
            if self.mode is OutputMode.LAST and end < len(self.tokens):
                outputs = common_pb2.OUTPUT_ROWS_NONE
            calls.append(_call(common_pb2.PHASE_PREFILL, self.tokens[begin:end], begin, outputs))
        for step, token in enumerate(sampled[: self.decode_steps]):
            # One row is both all rows and the last.
            calls.append(_call(common_pb2.PHASE_DECODE, (token,), len(self.tokens) + step, common_pb2.OUTPUT_ROWS_LAST))
        return calls


def _call(phase: common_pb2.Phase, tokens: tuple[int, ...], position: int, outputs: common_pb2.OutputRows) -> DecodeCall:
    rows = common_pb2.SequenceRows(slot=0, token_ids=tokens, positions=range(position, position + len(tokens)), outputs=outputs)
    return DecodeCall(phase=phase, sequences=[rows])
