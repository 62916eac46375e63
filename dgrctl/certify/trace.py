"""Checks that every stage made exactly the decode calls that the plan of a prompt asks for.

The reference replays the recorded calls, so a route that computed something else than what it was asked for would be compared
with that something else, and agree. The calls are therefore compared with the plan first, field by field, on each stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgrctl.certify.plan import DecodeCall, PromptPlan


def trace_problems(
    plan: PromptPlan, stages: Sequence[Sequence[DecodeCall]], sampled: Sequence[int], *, boundary_token_ids: bool = False
) -> list[str]:
    """What is wrong with the recorded calls, in words; empty when nothing is.

    Args:
        stages: The calls of each stage, head to tail, in the order they were made.
        sampled: The tokens that the client received.
        boundary_token_ids: Whether stages after the head learn the token ids.
    """
    problems = []
    if len(stages) != plan.stage_count:
        problems.append(f"{len(stages)} stages were recorded instead of {plan.stage_count}")
    if len(sampled) != plan.sampled_tokens:
        problems.append(f"{len(sampled)} tokens were sampled instead of {plan.sampled_tokens}")
    expected = plan.calls(sampled)
    for stage, calls in enumerate(stages):
        if len(calls) != len(expected):
            problems.append(f"stage {stage} made {len(calls)} decode calls instead of {len(expected)}")
        slots = {rows.slot for call in calls for rows in call.sequences}
        if len(slots) > 1:
            problems.append(f"stage {stage} moved the session between slots {sorted(slots)}")
        for index, (call, wanted) in enumerate(zip(calls, expected, strict=False)):
            found = _differences(call, wanted, learns_tokens=stage == 0 or boundary_token_ids)
            problems += [f"stage {stage}, decode call {index}: {difference}" for difference in found]
    return problems


def _differences(call: DecodeCall, wanted: DecodeCall, *, learns_tokens: bool) -> list[str]:
    """``learns_tokens``: a stage after the head learns token ids only where its boundary adapter carries them."""
    if len(call.sequences) != 1:
        return [f"{len(call.sequences)} sessions were in it instead of one"]
    found, expected = call.sequences[0], wanted.sequences[0]
    differences = []
    if call.phase != wanted.phase:
        differences.append(f"phase {call.phase} instead of {wanted.phase}")
    if found.outputs != expected.outputs:
        differences.append(f"output rows {found.outputs} instead of {expected.outputs}")
    if list(found.positions) != list(expected.positions):
        differences.append(f"positions {_span(found.positions)} instead of {_span(expected.positions)}")
    due = list(expected.token_ids) if learns_tokens else []
    if list(found.token_ids) != due:
        differences.append(f"{len(found.token_ids)} token ids that are not the {len(due)} planned")
    return differences


def _span(positions: Sequence[int]) -> str:
    return f"{positions[0]}…{positions[-1]} ({len(positions)})" if positions else "none"
