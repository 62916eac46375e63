"""Puts what a run measured into the predicate ``lane-certification/v2``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgrctl import __version__
from dgrctl.certify.bits import Tally
from dgrctl.certify.parity import PromptParity
from dgrctl.certify.subject import Subject
from dgrctl.evidence import certification as predicate
from dgrctl.evidence.ledger_records import Combination, Intent
from dgrctl.evidence.looks import estimates, pairs_demanded
from dgrctl.evidence.totals import actual_counts, difference_string, expected_counts, parity_totals
from dgrctl.evidence.verdict import gates_of, verdict_of
from dgrctl.lanes.record import REFERENCE, WORKER


@dataclass(frozen=True)
class Measured:
    """Everything that a complete run measured.

    ``shape`` is (vocabulary, values per row at a cut). Times are RFC 3339 in UTC.
    """

    nonce: str
    intent: predicate.LedgerPosition
    started: str
    finished: str
    shape: tuple[int, int]
    parity: Sequence[PromptParity]
    pairs: tuple[predicate.SpeedPair, ...]
    whole_threads: int
    before: predicate.Reading
    after: predicate.Reading
    processes: tuple[predicate.Process, ...]


def intent_of(subject: Subject) -> Intent:
    """What stands in the ledger before the run starts."""
    return Intent(
        combination=Combination(
            lane=subject.lock.lane,
            device=_device(subject).label,
            model=subject.lock.model,
            recipe=subject.prepared.recipe.name,
        ),
        lock=_lock(subject),
        recipe_sha256=subject.recipe_sha256,
        model_set_sha256=subject.prepared.model.set_digest,
        build_record_sha256=subject.build_record_sha256,
    )


def certification(subject: Subject, measured: Measured) -> predicate.Certification:
    """The predicate, with the verdict that its numbers give under the subject's lock."""
    lock, prepared = subject.lock, subject.prepared
    vocabulary, row_values = measured.shape
    model = predicate.ModelReference(
        id=lock.model,
        set_sha256=prepared.model.set_digest,
        architecture=prepared.model.architecture,
        layers=prepared.model.layer_count,
        vocabulary=vocabulary,
        residual_width=row_values,
        generator=prepared.model.generator,
    )
    parity, speed = _parity(subject, measured), _speed(subject, measured)
    gates = gates_of(parity, speed, lock.speed)
    prompt_tokens = {result.plan.prompt_id: len(result.plan.tokens) for result in measured.parity}
    return predicate.Certification(
        schema=2,
        evidence_class=lock.evidence_class,
        lane=lock.lane,
        run=predicate.Run(
            nonce=measured.nonce,
            intent=measured.intent,
            started=measured.started,
            finished=measured.finished,
            program=f"dgrctl {__version__}",
        ),
        lock=_lock(subject),
        recipe=_recipe(subject),
        model=model,
        device=_device(subject),
        build=_build(subject),
        environment=predicate.Environment(before=measured.before, after=measured.after),
        parity=parity,
        speed=speed,
        completion=predicate.Completion(
            marker="complete",
            expected=expected_counts(
                lock,
                list(prompt_tokens.values()),
                model,
                len(prepared.ranges) - 1,
                pairs_demanded(measured.pairs, lock.speed, measured.nonce),
            ),
            actual=actual_counts(parity, speed),
        ),
        verdict=verdict_of(gates),
        gates=gates,
        processes=measured.processes,
    )


def _lock(subject: Subject) -> predicate.LockReference:
    return predicate.LockReference(id=subject.lock.id, version=subject.lock.version, sha256=subject.lock.digest())


def _recipe(subject: Subject) -> predicate.RecipeReference:
    recipe, ranges = subject.prepared.recipe, subject.prepared.ranges
    return predicate.RecipeReference(
        name=recipe.name,
        sha256=subject.recipe_sha256,
        wire="bf16" if recipe.boundary.wire == "bf16" else "f32",
        ranges=tuple((layers.begin, layers.end) for layers in ranges),
    )


def _device(subject: Subject) -> predicate.Device:
    # The ISA that computed, which a build may have been told to keep below the processor's own.
    return predicate.Device(name=subject.device.name, isa=subject.prepared.build.isa, details=dict(subject.device.details))


def _build(subject: Subject) -> predicate.Build:
    build = subject.prepared.build
    return predicate.Build(
        pin=build.pin,
        stack_sha256=build.stack_digest,
        record_sha256=subject.build_record_sha256,
        worker_sha256=build.binaries[WORKER].sha256,
        reference_sha256=build.binaries[REFERENCE].sha256,
    )


def _parity(subject: Subject, measured: Measured) -> predicate.Parity:
    runs = tuple(_run(result) for result in measured.parity)
    cuts: dict[int, Tally] = {layers.end: Tally() for layers in subject.prepared.ranges[:-1]}
    for result in measured.parity:
        for cut, tally in result.boundaries.items():
            cuts[cut].merge(tally)
    boundaries = tuple(
        predicate.BoundaryParity(
            cut=cut,
            rows_compared=tally.rows,
            values_compared=tally.compared,
            values_differing=tally.differing,
            max_abs_difference=difference_string(tally.max_abs_difference),
        )
        for cut, tally in cuts.items()
    )
    locked = subject.lock.prompt_set
    return predicate.Parity(
        prompt_set=predicate.PromptSetReference(name=locked.name, sha256=locked.sha256),
        totals=parity_totals(runs, boundaries),
        runs=runs,
        boundaries=boundaries,
    )


def _run(result: PromptParity) -> predicate.ParityRun:
    return predicate.ParityRun(
        prompt=result.plan.prompt_id,
        outputs=result.plan.mode.value,
        prompt_tokens=len(result.plan.tokens),
        decode_steps=result.plan.decode_steps,
        logit_rows=result.logits.rows,
        logits_compared=result.logits.compared,
        logits_differing=result.logits.differing,
        max_abs_difference=difference_string(result.logits.max_abs_difference),
        greedy_rows_differing=result.greedy_differing,
        tokens_compared=result.tokens_compared,
        tokens_differing=result.tokens_differing,
    )


def _speed(subject: Subject, measured: Measured) -> predicate.Speed:
    locked, pairs = subject.lock.speed, measured.pairs
    prefill, decode = estimates(pairs, locked, measured.nonce)
    return predicate.Speed(
        warmup=locked.warmup,
        prompt_tokens=locked.prompt_tokens,
        generate_tokens=locked.generate_tokens,
        whole_threads=measured.whole_threads,
        stage_threads=subject.prepared.recipe.execution.threads,
        pairs=pairs,
        prefill=prefill,
        decode=decode,
        confidence=locked.confidence,
        bootstrap_resamples=locked.bootstrap_resamples,
        min_ratio_prefill=locked.min_ratio_prefill,
        min_ratio_decode=locked.min_ratio_decode,
        decode_slice_tokens=locked.decode_slice_tokens,
        looks=locked.looks,
    )
