"""A certification run, from its intent in the ledger to its signed evidence.

Order: take the lock "certify"; hold the build and the model; verify everything that can be verified without running; load the
signing key; read the machine; write the intent; measure parity, then speed; read the machine again; hash everything again;
judge; sign; write the outcome. Whatever ends a run after
its intent leaves a record of it: an outcome, or why it was aborted. A run that was killed leaves an intent that nothing follows.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dgrctl.certify.decision import decider
from dgrctl.certify.environment import capture, changes
from dgrctl.certify.identity import check_processes
from dgrctl.certify.inputs import held_inputs, require_unchanged
from dgrctl.certify.parity import PromptParity
from dgrctl.certify.parity_set import ReferenceOracle, compare_set, plans, require_room, tokenize
from dgrctl.certify.plan import OutputMode
from dgrctl.certify.predicate import Measured, certification, intent_of
from dgrctl.certify.prompts import require_crossing
from dgrctl.certify.speed import measure_pairs, speed_prompt, split, whole, whole_threads
from dgrctl.certify.subject import Subject, find_subject
from dgrctl.console import progress
from dgrctl.errors import AdmissionError, CertificationVoid, DgrError, StageError
from dgrctl.evidence.certification import Certification, Process, SpeedPair
from dgrctl.evidence.issue import write_certification
from dgrctl.evidence.keys import signing_key
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Aborted
from dgrctl.layout import Layout
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute
from dgrctl.statelock import state_lock


@dataclass(frozen=True)
class Result:
    """A run that reached its verdict, and where its evidence is."""

    certification: Certification
    evidence: Path


def certify(layout: Layout, *, lane: str, recipe: str, lock: str | None = None, storage: str | None = None) -> Result:
    """Certifies ``recipe`` on this machine. A failed verdict is a result, not an error.

    Args:
        lane, recipe, lock, storage: See :func:`dgrctl.certify.subject.find_subject`.

    Raises:
        InputError, IntegrityError, ToolchainError, KeyFileError: refused before anything started.
        CertificationVoid: the run could not be judged; the ledger says why.
        EvidenceError: the ledger is broken.
        StorageError: the disk is full or read-only.
    """
    with state_lock(layout, "certify"), held_inputs(layout, recipe, storage):
        subject = find_subject(layout, lane=lane, recipe=recipe, lock=lock, storage=storage)
        key = signing_key(layout)
        before, started = capture(), _now()
        nonce, ledger = new_nonce(), Ledger(layout)
        intent = ledger.intent(nonce, intent_of(subject))
        with _ending(ledger, nonce, intent.index):
            shape, parity, stated = _measure_parity(layout, subject)
            threads, pairs, stated_again = _measure_speed(layout, subject, parity, nonce)
            after = capture()
            _require_steady(changes(before, after))
            require_unchanged(layout, subject, recipe=recipe, storage=storage)
            measured = Measured(
                nonce=nonce,
                intent=intent,
                started=started,
                finished=_now(),
                shape=shape,
                parity=parity,
                pairs=pairs,
                whole_threads=threads,
                before=before,
                after=after,
                processes=(*stated, *stated_again),
            )
            judged = certification(subject, measured)
            return Result(judged, write_certification(layout, judged, key))


def _measure_parity(layout: Layout, subject: Subject) -> tuple[tuple[int, int], list[PromptParity], list[Process]]:
    """Returns (vocabulary, values per row at a cut), what every prompt in every output mode gave, and what the processes say."""
    prepared, locked = subject.prepared, subject.lock.parity
    recipe, model, build, ranges = prepared.recipe, prepared.model, prepared.build, prepared.ranges
    with (
        LocalReference(layout, recipe, model, build) as reference,
        LocalRoute(layout, recipe, model, build, ranges, allow_probes=True) as route,
    ):
        stage = route.stages[0].description
        stated = check_processes(prepared, "parity", reference.client.describe(), [one.description for one in route.stages])
        planned = plans(
            subject.prompts,
            _suitable_tokens(reference, subject),
            modes=[OutputMode(outputs) for outputs in locked.outputs],
            decode_steps=locked.decode_steps,
            ubatch=recipe.execution.ubatch,
            stage_count=len(ranges),
        )
        done = 0
        with progress("Comparing with the reference, bit by bit", total=sum(plan.positions for _, plan in planned)) as update:

            def advance(result: PromptParity) -> None:
                nonlocal done
                done += result.plan.positions
                update(done, None)

            results = compare_set(route, ReferenceOracle(reference), planned, route.folder, advance)
        return (stage.vocabulary, stage.streams * stage.width), results, stated


def _suitable_tokens(reference: LocalReference, subject: Subject) -> dict[str, tuple[int, ...]]:
    """The prompts' tokens by prompt, checked to be what this recipe and this lock can be judged on."""
    tokens = tokenize(reference, subject.prompts)
    execution = subject.prepared.recipe.execution
    require_crossing(subject.prompts, {name: len(ids) for name, ids in tokens.items()}, execution.ubatch)
    require_room(tokens, subject.lock.parity.decode_steps, execution.context)
    speed = subject.lock.speed
    require_room(
        {"of the speed pairs": speed_prompt(tokens.values(), speed.prompt_tokens)}, speed.generate_tokens, execution.context
    )
    return tokens


def _measure_speed(
    layout: Layout, subject: Subject, parity: list[PromptParity], nonce: str
) -> tuple[int, tuple[SpeedPair, ...], list[Process]]:
    """Returns the threads that the whole had, the pairs, and what the processes state.

    Processes are fresh: none has probes on or logits to send.
    """
    prepared, locked = subject.prepared, subject.lock.speed
    recipe, model, build, ranges = prepared.recipe, prepared.model, prepared.build, prepared.ranges
    prompt = speed_prompt([result.plan.tokens for result in parity], locked.prompt_tokens)
    threads = whole_threads(layout, recipe, len(ranges))
    total = locked.warmup + locked.schedule[0]
    decided = decider(locked, nonce, identical=all(result.identical for result in parity))
    done = 0
    with (
        LocalReference(layout, recipe, model, build, threads=threads) as reference,
        LocalRoute(layout, recipe, model, build, ranges) as route,
        progress("Measuring whole and split in pairs", total=total) as update,
    ):

        def advance() -> None:
            nonlocal done
            done += 1
            update(done, None)

        def enough(measured: Sequence[SpeedPair]) -> bool:
            ended = decided(measured)
            update(done, next((locked.warmup + look for look in locked.schedule if look > len(measured)), None))
            return ended

        stated = check_processes(prepared, "speed", reference.client.describe(), [one.description for one in route.stages])
        sides = (whole(reference), split(route))
        pairs = measure_pairs(
            sides,
            prompt,
            locked.generate_tokens,
            decode_slice=locked.decode_slice_tokens,
            warmup=locked.warmup,
            pairs=locked.schedule[-1],
            advance=advance,
            enough=enough,
        )
    return threads, pairs, stated


def _require_steady(found: list[str]) -> None:
    if found:
        raise CertificationVoid(
            "the machine did not stay the same during the run",
            detail="\n".join(found),
            remedy="let it cool down and come to rest, then certify again",
        )


@contextlib.contextmanager
def _ending(ledger: Ledger, nonce: str, intent: int) -> Iterator[None]:
    """Records why a run was aborted, whatever aborts it, and reports what befell its processes as a void run."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(DgrError):  # what ended the run says more than that it could not be recorded
            ledger.aborted(nonce, Aborted(intent=intent, reason=_reason(error)))
        if isinstance(error, StageError | AdmissionError):
            raise CertificationVoid(
                f"the run ended without a verdict: {error.what}", where=error.where, remedy=error.remedy, detail=error.detail
            ) from error
        raise


def _reason(error: BaseException) -> str:
    if isinstance(error, DgrError):
        return error.what[:4000]
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128:
        return f"ended by {signal.Signals(error.code - 128).name}"
    return f"{type(error).__name__}: {error}"[:4000]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
