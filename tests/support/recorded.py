"""A small recorded run, to be changed by tests: three stages, one prompt prefilled in three decode calls, two decode steps."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from dgr.v1 import common_pb2, reference_pb2

from dgrctl.certify.bits import RowSpool
from dgrctl.certify.parity import Observation, PromptParity, compare
from dgrctl.certify.plan import DecodeCall, OutputMode, PromptPlan

VOCABULARY = 11
WIDTH = 6
UBATCH = 4
CUTS = (2, 5)
PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5)


@dataclass
class Recorded:
    """What a route recorded and what the reference answers; equal until a test changes either side."""

    plan: PromptPlan
    sampled: list[int]
    calls: list[list[DecodeCall]]
    boundaries: dict[int, np.ndarray]  # what left the stages: (positions, WIDTH) binary32
    logits: np.ndarray  # what reached the client: (logits_rows, VOCABULARY) binary32
    responses: list[reference_pb2.ReplayResponse]
    prompt_tokens: tuple[int, ...] = PROMPT
    boundary_token_ids: bool = True
    asked: list[tuple[tuple[DecodeCall, ...], tuple[int, ...]]] = field(default_factory=list)

    def compare(self, folder: Path) -> PromptParity:
        """Judges what the route recorded by what the reference answers."""
        with contextlib.closing(self._observation(folder)) as observation:
            return compare(self.plan, CUTS, observation, self)

    def _observation(self, folder: Path) -> Observation:
        return Observation(
            prompt_tokens=self.prompt_tokens,
            sampled=tuple(self.sampled),
            calls=tuple(tuple(calls) for calls in self.calls),
            boundaries=tuple(_spool(folder, rows) for rows in self.boundaries.values()),
            logits=_spool(folder, self.logits),
            boundary_token_ids=self.boundary_token_ids,
        )

    def replay(self, calls: Sequence[DecodeCall], cuts: Sequence[int]) -> Iterator[reference_pb2.ReplayResponse]:
        self.asked.append((tuple(calls), tuple(cuts)))
        yield from self.responses


def _spool(folder: Path, rows: np.ndarray) -> RowSpool:
    spool = RowSpool(folder, rows.shape[1])
    spool.append(rows.tobytes())
    return spool


def record(mode: OutputMode) -> Recorded:
    """A run in which route and reference agree in every bit."""
    plan = PromptPlan("pi", mode, PROMPT, decode_steps=2, ubatch=UBATCH, stage_count=len(CUTS) + 1)
    generator = np.random.Generator(np.random.PCG64(7))
    residuals = {cut: generator.standard_normal((plan.positions, WIDTH), dtype=np.float32) for cut in CUTS}
    logits = generator.standard_normal((plan.logits_rows, VOCABULARY), dtype=np.float32)
    sampled = [int(row.argmax()) for row in logits[-plan.sampled_tokens :]]
    calls = plan.calls(sampled)
    return Recorded(
        plan=plan,
        sampled=sampled,
        calls=[[DecodeCall.FromString(call.SerializeToString()) for call in calls] for _ in range(plan.stage_count)],
        boundaries={cut: rows.copy() for cut, rows in residuals.items()},
        logits=logits.copy(),
        responses=_answers(plan, calls, residuals, logits),
    )


def _answers(
    plan: PromptPlan, calls: list[DecodeCall], residuals: dict[int, np.ndarray], logits: np.ndarray
) -> list[reference_pb2.ReplayResponse]:
    """As dgr-reference answers: call by call, each residual in blocks of at most three rows, then the logits."""
    answers = []
    for index, call in enumerate(calls):
        first, rows = call.sequences[0].positions[0], len(call.sequences[0].positions)
        for cut, values in residuals.items():
            for begin in range(0, rows, 3):
                block = values[first + begin : first + min(begin + 3, rows)]
                residual = reference_pb2.ResidualRows(
                    cut=cut, row_begin=begin, rows=len(block), streams=2, width=WIDTH // 2, values=block.tobytes()
                )
                answers.append(reference_pb2.ReplayResponse(call_index=index, residual=residual))
        position = max(first, plan.first_logits_position)
        block = logits[position - plan.first_logits_position : first + rows - plan.first_logits_position]
        if first + rows > position:
            message = common_pb2.LogitsRows(
                first_position=position, rows=len(block), vocabulary=VOCABULARY, values=block.tobytes()
            )
            answers.append(reference_pb2.ReplayResponse(call_index=index, logits=message))
    return answers


def flip_a_bit(rows: np.ndarray, seed: int) -> None:
    """Flips one bit of one value, anywhere but in an exponent or sign."""
    generator = random.Random(seed)
    flat = rows.reshape(-1).view(np.uint32)
    flat[generator.randrange(flat.size)] ^= np.uint32(1 << generator.randrange(23))
