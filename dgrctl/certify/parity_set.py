"""Parity over a whole prompt set: every prompt in every output mode, one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dgr.v1 import common_pb2, reference_pb2

from dgrctl.certify.observe import observe
from dgrctl.certify.parity import Oracle, PromptParity, compare
from dgrctl.certify.plan import DecodeCall, OutputMode, PromptPlan
from dgrctl.certify.prompts import Prompt, PromptSet
from dgrctl.errors import AdmissionError, CertificationVoid, InputError
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import Route

_SHORTER = "use a recipe with a larger context, or a lock whose prompts are shorter"


class ReferenceOracle(Oracle):
    """dgr-reference as the judge's oracle."""

    def __init__(self, reference: LocalReference) -> None:
        self._reference = reference

    def replay(self, calls: Sequence[DecodeCall], cuts: Sequence[int]) -> Iterable[reference_pb2.ReplayResponse]:
        with self._reference.explained():
            yield from self._reference.client.replay(reference_pb2.ReplayRequest(calls=calls, cuts=cuts))


def tokenize(reference: LocalReference, prompts: PromptSet) -> dict[str, tuple[int, ...]]:
    """Each prompt's tokens by its id, as the reference's tokenizer cuts it.

    Raises:
        InputError: a prompt alone needs more than the reference's context.
        CertificationVoid: the reference does not answer with tokens.
        StageError: it died.
    """
    return {prompt.id: _tokenize(reference, prompt) for prompt in prompts.prompts}


def _tokenize(reference: LocalReference, prompt: Prompt) -> tuple[int, ...]:
    try:
        with reference.explained(), reference.client.generate(wire_prompt(prompt), max_tokens=0) as answers:
            first = next(iter(answers), None)
    except AdmissionError as error:
        raise InputError(
            f"this prompt does not fit into the recipe's context: {error.what}", where=f"prompt {prompt.id}", remedy=_SHORTER
        ) from error
    if first is None or not first.prompt_tokens.ids:
        raise CertificationVoid("the reference did not say how it tokenizes a prompt", where=f"prompt {prompt.id}")
    return tuple(first.prompt_tokens.ids)


def wire_prompt(prompt: Prompt) -> common_pb2.Prompt:
    """The text as it stands, without a chat template, so that the tokens are the text's alone."""
    return common_pb2.Prompt(text=prompt.text)


def require_room(tokens: dict[str, tuple[int, ...]], decode_steps: int, context: int) -> None:
    """Refuses prompts that the recipe's context cannot hold together with their decode steps.

    Raises:
        InputError: names the prompt and both numbers.
    """
    for prompt_id, ids in tokens.items():
        if len(ids) + decode_steps > context:
            raise InputError(
                f"{len(ids)} tokens and {decode_steps} decode steps need more than the recipe's context of {context} positions",
                where=f"prompt {prompt_id}",
                remedy=_SHORTER,
            )


def compare_set(
    route: Route,
    oracle: Oracle,
    prompts: Sequence[tuple[common_pb2.Prompt, PromptPlan]],
    folder: Path,
    advance: Callable[[PromptParity], None] = lambda result: None,
) -> list[PromptParity]:
    """Runs and judges each plan on the route; rows of one prompt at a time are kept, in ``folder``.

    Args:
        advance: Told each result as it is known.

    Raises:
        CertificationVoid: a run that cannot be judged; see :func:`dgrctl.certify.parity.compare`.
        StageError, AdmissionError: of the route or the reference.
    """
    cuts = [stage.layers.end for stage in route.stages[:-1]]
    results = []
    for prompt, plan in prompts:
        with contextlib.closing(observe(route, plan, prompt, folder)) as observation:
            results.append(compare(plan, cuts, observation, oracle))
        advance(results[-1])
    return results


def plans(
    prompts: PromptSet,
    tokens: dict[str, tuple[int, ...]],
    *,
    modes: Sequence[OutputMode],
    decode_steps: int,
    ubatch: int,
    stage_count: int,
) -> list[tuple[common_pb2.Prompt, PromptPlan]]:
    """Every prompt in every mode."""
    return [
        (
            wire_prompt(prompt),
            PromptPlan(
                prompt_id=prompt.id,
                mode=mode,
                tokens=tokens[prompt.id],
                decode_steps=decode_steps,
                ubatch=ubatch,
                stage_count=stage_count,
            ),
        )
        for prompt in prompts.prompts
        for mode in modes
    ]
