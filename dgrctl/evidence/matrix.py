"""The lane matrix: which exact combination of lane, device, model and recipe may be advertised, and why the others may not.

A pure function of the trust store, the locks, the prompt sets, the ledger, the evidence files, today's date and what this machine
says of its lanes. Nothing is certified by absence: what has no valid, current, passed evidence is dark, with its reason.

The ledger decides which run counts for a combination: the one that ended last, whatever its verdict. So a failed run cannot be
undone by removing its evidence, and evidence that the ledger does not know counts for nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from msgspec.structs import asdict

from dgrctl.errors import DgrError, OlderLedgerError
from dgrctl.evidence.certification import Certification, device_label, is_label_of
from dgrctl.evidence.fields import (
    CommitHex,
    Count,
    Date,
    Decimal,
    EvidenceClass,
    Name,
    Record,
    Sha256Hex,
    Text,
    Timestamp,
    one_line,
)
from dgrctl.evidence.ledger_chain import Chain, Run
from dgrctl.evidence.ledger_records import Aborted, Combination, Outcome
from dgrctl.evidence.lock import Lock
from dgrctl.evidence.trust import TrustStore
from dgrctl.evidence.verdict import reasons
from dgrctl.evidence.verify import Context, VerifiedCertification, verify_certification

PREDICATE_TYPE = "https://dgr.dev/lane-matrix/v2"

# Only these classes speak about hardware; the others are proofs of code paths.
_ADVERTISABLE_CLASSES = ("real-hardware", "release")


Cause = Literal["passed", "uncertified", "unfinished", "unusable", "failed", "class", "future", "expired"]


class LaneState(Record, frozen=True):
    """What this machine has for a lane: a device and its highest ISA, or the reason why nothing can be certified here."""

    lane: Name
    device: Text | None
    isa: Text | None
    unavailable: Text | None


class Proof(Record, frozen=True):
    """The evidence behind a row, with what a router needs to recognise the certified thing."""

    file: Text  # below certs/evidence
    sha256: Sha256Hex
    evidence_class: EvidenceClass
    lock: Text
    lock_sha256: Sha256Hex
    nonce: Text
    intent: Count  # the run's place in the ledger
    finished: Timestamp
    expires: Date  # the last day on which it counts
    worker_sha256: Sha256Hex
    model_set_sha256: Sha256Hex
    recipe_sha256: Sha256Hex
    pin: CommitHex
    stack_sha256: Sha256Hex
    logits_compared: Count
    logits_differing: Count
    prefill_ratio: Decimal
    decode_ratio: Decimal


class Row(Record, frozen=True):
    """One combination, or a lane (or this machine's device of a lane) that has none."""

    lane: Name
    device: Text | None
    model: Name | None
    recipe: Name | None
    status: Literal["advertisable", "dark"]
    cause: Cause  # what the reason says, for programs
    reason: Text
    trust: Text | None  # who vouches; null where no valid evidence does
    evidence: Proof | None


class Problem(Record, frozen=True):
    """A file under certs/evidence that is not used, and why. ``sha256`` is null where its bytes could not be had."""

    file: Text
    sha256: Sha256Hex | None
    reason: Text


class LedgerState(Record, frozen=True):
    """The ledger that a matrix was made from: its number of records, and the digest of the last."""

    records: Count
    head: Sha256Hex


class File(Record, frozen=True):
    """A file that a matrix was made from, by its path below ``certs``."""

    name: Text
    sha256: Sha256Hex


class Matrix(Record, frozen=True):
    """The predicate ``lane-matrix/v2``, and what ``dgrctl matrix --json`` prints.

    ``complete`` is false where something under ``certs/evidence`` was not used; ``problems`` says what. ``files`` are all files
    that it was made from, in order of their names; the signed statement's subjects are exactly these.
    """

    schema: Literal[2]
    date: Date
    complete: bool
    ledger: LedgerState
    files: tuple[File, ...]
    lanes: tuple[LaneState, ...]
    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Inputs:
    """All that a matrix depends on.

    Attributes:
        prompts: SHA-256 of each prompt set's file, by the set's name.
        evidence: Bytes of each file by its path below ``certs/evidence``.
        unreadable: Files whose bytes could not be had, and why.
        today: In UTC.
        lanes: In the order in which they are shown.
    """

    trust: TrustStore
    locks: Mapping[str, Lock]
    prompts: Mapping[str, str]
    ledger: Chain
    evidence: Mapping[str, bytes]
    unreadable: Mapping[str, str]
    today: date
    lanes: Sequence[LaneState]


def lane_matrix(inputs: Inputs) -> Matrix:
    """The matrix of these inputs."""
    verified, problems = _verify_all(inputs)
    rows = [
        _row(combination, runs, verified, problems, inputs.today) for combination, runs in _by_combination(inputs.ledger).items()
    ]
    rows += _missing(inputs.lanes, rows)
    order = {state.lane: place for place, state in enumerate(inputs.lanes)}
    return Matrix(
        schema=2,
        date=inputs.today.isoformat(),
        complete=not problems,
        ledger=LedgerState(records=len(inputs.ledger.records), head=inputs.ledger.head),
        files=tuple(_files(inputs)),
        lanes=tuple(inputs.lanes),
        rows=tuple(sorted(rows, key=lambda row: (order.get(row.lane, len(order)), *_sort_key(row)))),
        problems=tuple(
            Problem(file=file, sha256=_sha256(inputs.evidence.get(file)), reason=reason)
            for file, reason in sorted(problems.items())
        ),
    )


def _files(inputs: Inputs) -> list[File]:
    found = {f"locks/{name}.toml": lock.digest() for name, lock in inputs.locks.items()}
    found |= {f"prompts/{name}.toml": sha256 for name, sha256 in inputs.prompts.items()}
    found |= {f"evidence/{name}": hashlib.sha256(data).hexdigest() for name, data in inputs.evidence.items()}
    if inputs.ledger.records:
        found["ledger.jsonl"] = inputs.ledger.sha256
    return [File(name=name, sha256=sha256) for name, sha256 in sorted(found.items())]


def _sha256(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _verify_all(inputs: Inputs) -> tuple[dict[str, VerifiedCertification], dict[str, str]]:
    """Evidence that verified, and the reasons why the rest did not, by file."""
    context = Context(inputs.trust, inputs.locks, inputs.prompts, inputs.ledger)
    verified: dict[str, VerifiedCertification] = {}
    problems = dict(inputs.unreadable)
    for file, data in inputs.evidence.items():
        try:
            found = verify_certification(data, file, context)
            named = _named(found, inputs.ledger)
            if named == file:
                verified[file] = found
            else:
                problems[file] = one_line(f"the ledger names this evidence {named}: the file was renamed or copied")
        except OlderLedgerError:
            raise  # a ledger that lost records cannot say what counts
        except DgrError as error:
            problems[file] = one_line(error.what)
    return verified, problems


def _named(found: VerifiedCertification, ledger: Chain) -> str | None:
    run = ledger.run_of(found.certification.run.intent)
    return run.ending.evidence if run is not None and isinstance(run.ending, Outcome) else None


def _by_combination(ledger: Chain) -> dict[Combination, list[Run]]:
    runs: dict[Combination, list[Run]] = {}
    for run in ledger.runs():
        runs.setdefault(run.intent.combination, []).append(run)
    return runs


def _row(
    combination: Combination,
    runs: Sequence[Run],
    verified: Mapping[str, VerifiedCertification],
    problems: dict[str, str],
    today: date,
) -> Row:
    judged = [(run.ended_at or 0, run.record.index, run.ending) for run in runs if isinstance(run.ending, Outcome)]
    if not judged:
        return _dark(**asdict(combination), cause="unfinished", reason=_unfinished(runs))
    _, index, last = max(judged, key=lambda run: run[0])
    found = verified.get(last.evidence)
    if found is None or found.certification.run.intent.index != index:
        why = "is missing" if found is None else "is another run's"
        if last.evidence in problems:
            why = f"does not verify: {problems[last.evidence]}"
        told = f"the ledger names it as the last evidence of {combination.recipe}, and it {why}"
        problems.setdefault(one_line(last.evidence), one_line(told))
        return _dark(**asdict(combination), cause="unusable", reason=f"its last evidence, {last.evidence}, {why}")
    refusal = _refusal(found, today)
    passed = f"passed {found.lock.name} on {_day(found.certification)}; counts until {_expiry(found)}"
    later = sum(run.record.index > index and not isinstance(run.ending, Outcome) for run in runs)
    return Row(
        **asdict(combination),
        status="dark" if refusal else "advertisable",
        cause=refusal[0] if refusal else "passed",
        reason=one_line((refusal[1] if refusal else passed) + (f"; later runs without an end: {later}" if later else "")),
        trust=found.trust,
        evidence=_proof(last.evidence, found),
    )


def _dark(
    lane: str, cause: Cause, reason: str, *, device: str | None = None, model: str | None = None, recipe: str | None = None
) -> Row:
    return Row(
        lane=lane,
        device=device,
        model=model,
        recipe=recipe,
        status="dark",
        cause=cause,
        reason=one_line(reason),
        trust=None,
        evidence=None,
    )


def _unfinished(runs: Sequence[Run]) -> str:
    ending = runs[-1].ending
    if isinstance(ending, Aborted):
        return f"no run reached its end; the last was aborted: {ending.reason}"
    return f"no run reached its end; the last began at {runs[-1].record.time} and is under way, or died"


def _refusal(found: VerifiedCertification, today: date) -> tuple[Cause, str] | None:
    """Why valid evidence is not advertisable; None when it is."""
    certification = found.certification
    day = _day(certification)
    if certification.verdict == "failed":
        why = reasons(certification)
        more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
        return "failed", f"failed {found.lock.name} on {day}: {why[0]}{more}"
    if certification.evidence_class not in _ADVERTISABLE_CLASSES:
        return "class", f"its evidence is of class {certification.evidence_class}, which says nothing about hardware"
    if day > today:
        return "future", f"its evidence is dated {day}, in the future"
    if _expiry(found) < today:
        return "expired", f"its evidence expired on {_expiry(found)}"
    return None


def _day(certification: Certification) -> date:
    return datetime.fromisoformat(certification.run.finished).date()


def _expiry(found: VerifiedCertification) -> date:
    return _day(found.certification) + timedelta(days=found.lock.valid_days)


def _proof(file: str, found: VerifiedCertification) -> Proof:
    certification = found.certification
    return Proof(
        file=file,
        sha256=found.sha256,
        evidence_class=certification.evidence_class,
        lock=found.lock.name,
        lock_sha256=found.lock.digest(),
        nonce=certification.run.nonce,
        intent=certification.run.intent.index,
        finished=certification.run.finished,
        expires=_expiry(found).isoformat(),
        worker_sha256=certification.build.worker_sha256,
        model_set_sha256=certification.model.set_sha256,
        recipe_sha256=certification.recipe.sha256,
        pin=certification.build.pin,
        stack_sha256=certification.build.stack_sha256,
        logits_compared=certification.parity.totals.logits_compared,
        logits_differing=certification.parity.totals.logits_differing,
        prefill_ratio=certification.speed.prefill.ratio,
        decode_ratio=certification.speed.decode.ratio,
    )


def _missing(lanes: Iterable[LaneState], rows: Sequence[Row]) -> list[Row]:
    """Dark rows for what nothing was ever certified on: this machine's own devices, and lanes without any row."""
    missing = []
    for state in lanes:
        devices = [row.device or "" for row in rows if row.lane == state.lane]
        if state.device is None or state.isa is None:
            device, known = None, bool(devices)
        else:
            # Of any ISA: a build for a lower one than the processor has is still about this device.
            device = device_label(state.device, state.isa)
            known = any(is_label_of(label, state.device) for label in devices)
        if not known:
            again = f"no evidence; make some with: dgrctl certify --lane {state.lane} --recipe RECIPE"
            missing.append(_dark(state.lane, "uncertified", state.unavailable or again, device=device))
    return missing


def _sort_key(row: Row) -> tuple[str, str, str]:
    return (row.device or "", row.model or "", row.recipe or "")
