"""Whether a certification's numbers fit each other and its lock: every sum, ratio and count is repeated from its raw parts.

The signature says who wrote the numbers, this says that they can be what a complete run under that lock gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise, zip_longest

from dgrctl.evidence.certification import Certification, Gate, ParityRun
from dgrctl.evidence.lock import Lock
from dgrctl.evidence.looks import estimates, pairs_demanded, standing
from dgrctl.evidence.totals import actual_counts, expected_counts, logit_rows, parity_totals
from dgrctl.evidence.verdict import gates_of, identical, verdict_of

# Names under which devices show themselves that are programs. Nothing they compute is evidence about hardware.
_EMULATED = ("qemu tcg", "tcgtcg", "bochs", "llvmpipe", "lavapipe", "softpipe", "swiftshader")

# Dates are added to; far beyond this they could not be.
_LAST_YEAR = 2999


def problems(certification: Certification, lock: Lock) -> Iterator[str]:
    """What contradicts itself or the lock, in sentences; nothing where all is well."""
    yield from _identity(certification, lock)
    yield from _times(certification)
    yield from _runs(certification, lock)
    yield from _boundaries(certification)
    yield from _speed(certification, lock)
    yield from _completion(certification, lock)
    yield from _verdict(certification, lock)


def _identity(certification: Certification, lock: Lock) -> Iterator[str]:
    named = (certification.lock.id, certification.lock.version, certification.lock.sha256)
    if named != (lock.id, lock.version, lock.digest()):
        yield f"it was judged by lock {named[0]}.v{named[1]} ({named[2]}), not by {lock.name} ({lock.digest()})"
    for what, found, locked in (
        ("lane", certification.lane, lock.lane),
        ("model", certification.model.id, lock.model),
        ("evidence class", certification.evidence_class, lock.evidence_class),
    ):
        if found != locked:
            yield f"its {what} is {found}; the lock is for {locked}"
    shown = f"{certification.device.name}\n{certification.environment.before.cpu_model}".lower()
    if certification.evidence_class in ("real-hardware", "release") and any(name in shown for name in _EMULATED):
        yield f"{certification.device.name} is an emulator; it can never give {certification.evidence_class}"
    if certification.model.generator is not None and certification.evidence_class != "fixture":
        yield (
            f"its model is a fixture, made by {certification.model.generator}; it can never give {certification.evidence_class}"
        )
    ranges = certification.recipe.ranges
    contiguous = all(left[1] == right[0] for left, right in pairwise(ranges)) and all(begin < end for begin, end in ranges)
    if not contiguous or ranges[0][0] != 0 or ranges[-1][1] != certification.model.layers:
        yield f"its ranges do not cover layers 0 to {certification.model.layers} once and in order"


def _times(certification: Certification) -> Iterator[str]:
    run, environment = certification.run, certification.environment
    try:
        started, finished, before, after = (
            datetime.fromisoformat(text)
            for text in (run.started, run.finished, environment.before.captured_at, environment.after.captured_at)
        )
    except ValueError as error:
        yield f"a time in it cannot be read: {error}"
        return
    if finished.year > _LAST_YEAR:
        yield f"it ended in the year {finished.year}, which is no date of a run"
    if started > finished or before > after:
        yield "it ends before it starts"


def _runs(certification: Certification, lock: Lock) -> Iterator[str]:
    parity = certification.parity
    if (parity.prompt_set.name, parity.prompt_set.sha256) != (lock.prompt_set.name, lock.prompt_set.sha256):
        yield f"its prompt set is {parity.prompt_set.name}, not the locked one"
    expected = {(prompt, outputs) for prompt in {run.prompt for run in parity.runs} for outputs in lock.parity.outputs}
    found = [(run.prompt, run.outputs) for run in parity.runs]
    if len(expected) != lock.prompt_set.prompts * len(lock.parity.outputs) or sorted(found) != sorted(expected):
        yield (
            f"it holds {len(found)} parity runs of {len({run.prompt for run in parity.runs})} prompts; the lock demands each of "
            f"{lock.prompt_set.prompts} prompts once with each of {', '.join(lock.parity.outputs)}"
        )
    if len({(run.prompt, run.prompt_tokens) for run in parity.runs}) != len({run.prompt for run in parity.runs}):
        yield "a prompt has different numbers of tokens in different runs"
    for run in parity.runs:
        yield from _run(run, certification.model.vocabulary, lock)
    if parity.totals != parity_totals(parity.runs, parity.boundaries):
        yield "the parity totals are not the sums of their parts"


def _run(run: ParityRun, vocabulary: int, lock: Lock) -> Iterator[str]:
    name = f"prompt {run.prompt}, outputs {run.outputs}"
    rows = logit_rows(run.outputs, run.prompt_tokens, run.decode_steps)
    if run.decode_steps != lock.parity.decode_steps:
        yield f"{name}: {run.decode_steps} decode steps, not {lock.parity.decode_steps}"
    if (run.logit_rows, run.logits_compared) != (rows, rows * vocabulary):
        yield f"{name}: {run.logits_compared} logits in {run.logit_rows} rows, not {rows} rows of {vocabulary}"
    if run.tokens_compared != run.decode_steps + 1:
        yield f"{name}: {run.tokens_compared} tokens compared, not {run.decode_steps + 1}"
    if run.tokens_differing > run.tokens_compared or run.greedy_rows_differing > run.logit_rows:
        yield f"{name}: more tokens differ than were compared"
    yield from _differing(name, run.logits_compared, run.logits_differing, run.max_abs_difference)


def _boundaries(certification: Certification) -> Iterator[str]:
    parity, width = certification.parity, certification.model.residual_width
    cuts = [end for _, end in certification.recipe.ranges[:-1]]
    if [boundary.cut for boundary in parity.boundaries] != cuts:
        yield f"boundaries were compared at cuts {[boundary.cut for boundary in parity.boundaries]}; the recipe cuts at {cuts}"
    rows = sum(run.prompt_tokens + run.decode_steps for run in parity.runs)
    for boundary in parity.boundaries:
        name = f"cut {boundary.cut}"
        if (boundary.rows_compared, boundary.values_compared) != (rows, rows * width):
            yield f"{name}: {boundary.values_compared} values in {boundary.rows_compared} rows, not {rows} rows of {width}"
        yield from _differing(name, boundary.values_compared, boundary.values_differing, boundary.max_abs_difference)


def _differing(name: str, compared: int, differing: int, difference: str) -> Iterator[str]:
    if differing > compared:
        yield f"{name}: {differing} of {compared} values differ"
    if not differing and difference != "0":
        yield f"{name}: no value differs, but the largest difference is given as {difference}"


def _speed(certification: Certification, lock: Lock) -> Iterator[str]:
    speed, locked = certification.speed, lock.speed
    for what, found, demanded in (
        ("warm-up pairs", speed.warmup, locked.warmup),
        ("looks after pairs", speed.looks, locked.looks),
        ("pairs", len(speed.pairs), pairs_demanded(speed.pairs, locked, certification.run.nonce)),
        ("prompt tokens", speed.prompt_tokens, locked.prompt_tokens),
        ("generated tokens", speed.generate_tokens, locked.generate_tokens),
        ("turns of tokens", speed.decode_slice_tokens, locked.decode_slice_tokens),
        ("confidence", speed.confidence, locked.confidence),
        ("resamples", speed.bootstrap_resamples, locked.bootstrap_resamples),
        ("minimum ratio of prefill", speed.min_ratio_prefill, locked.min_ratio_prefill),
        ("minimum ratio of decode", speed.min_ratio_decode, locked.min_ratio_decode),
    ):
        if found != demanded:
            yield f"speed was measured with {what} {found}; the lock demands {demanded}"
            return
    if {pair.first for pair in speed.pairs} != {"whole", "split"}:
        yield "one of whole and split came first in every pair"
    prefill, decode = estimates(speed.pairs, locked, certification.run.nonce)
    for phase, found_estimate, repeated in (("prefill", speed.prefill, prefill), ("decode", speed.decode, decode)):
        if found_estimate != repeated:
            yield f"the {phase} ratio does not follow from the raw pairs: {found_estimate.ratio}, not {repeated.ratio}"
    undecided = standing(speed.pairs, locked, certification.run.nonce) == "undecided"
    if undecided and identical(certification.parity):
        yield "its speed is undecided: such a run is void and has no evidence"
    throttled = sum(pair.throttled_periods or 0 for pair in speed.pairs)
    if throttled:
        yield f"a CPU quota throttled it in {throttled} periods while speed was measured: such a run is void and has no evidence"


def _completion(certification: Certification, lock: Lock) -> Iterator[str]:
    counted = actual_counts(certification.parity, certification.speed)
    tokens = {run.prompt: run.prompt_tokens for run in certification.parity.runs}
    demanded = pairs_demanded(certification.speed.pairs, lock.speed, certification.run.nonce)
    expected = expected_counts(lock, list(tokens.values()), certification.model, len(certification.recipe.ranges) - 1, demanded)
    if certification.completion.actual != counted:
        yield "the completion marker counts other than what the evidence holds"
    if certification.completion.expected != expected:
        yield "the completion marker expects other counts than the lock, the prompts and the recipe give"
    if certification.completion.expected != certification.completion.actual:
        yield "the run is incomplete: expected and actual counts differ"


def _verdict(certification: Certification, lock: Lock) -> Iterator[str]:
    gates = gates_of(certification.parity, certification.speed, lock.speed)
    for found, given in zip_longest(certification.gates, gates):
        if found != given:
            yield f"its gate {(found or given).id} is {_shown(found)}, and its numbers give {_shown(given)}"
    if certification.verdict != verdict_of(gates):
        failed = ", ".join(gate.id for gate in gates if not gate.passed)
        because = f": it failed {failed}" if failed else ""
        yield f"its verdict is {certification.verdict}, and its numbers say {verdict_of(gates)}{because}"


def _shown(gate: Gate | None) -> str:
    if gate is None:
        return "missing"
    return f"{'passed' if gate.passed else 'failed'} with {gate.measured} (required: {gate.required})"
