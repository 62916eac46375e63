"""Verifying signed certifications. The checks run in this order, and the first that fails is the reason:

1. the file's bytes are the one exact form of its envelope, of payload type in-toto (:mod:`dgrctl.evidence.dsse`);
2. every signature is by a trusted key and fits the payload;
3. the payload is a canonical in-toto Statement v1 about something, of the predicate type asked for;
4. the predicate holds exactly its fields, in their types;
5. its subjects are the worker, the reference, the model set, the recipe and the lock that it speaks of;
6. the lock and its prompt set are here, unchanged, and every number fits it and the others (:mod:`dgrctl.evidence.consistency`);
7. where there is a ledger, the run's intent stands in it where the evidence says, and its outcome names this very file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dgrctl.errors import EvidenceError, OlderLedgerError
from dgrctl.evidence import certification_v1
from dgrctl.evidence.certification import PREDICATE_TYPE, Certification
from dgrctl.evidence.consistency import problems
from dgrctl.evidence.dsse import read_envelope
from dgrctl.evidence.ledger_chain import Chain
from dgrctl.evidence.ledger_records import Aborted, Intent
from dgrctl.evidence.lock import Lock
from dgrctl.evidence.parsing import MAX_BYTES, convert
from dgrctl.evidence.statement import Statement, Subject, read_statement
from dgrctl.evidence.trust import Trust, TrustStore, label_of
from dgrctl.files import read_regular

_AGAIN = "certify again; this file is of no use"


@dataclass(frozen=True)
class Context:
    """What evidence is verified against.

    Attributes:
        locks: By name, ``<id>.v<version>``.
        prompts: SHA-256 of each prompt set's file, by the set's name.
        ledger: None where there is none: then positions are not checked, and the result says so.
    """

    trust: TrustStore
    locks: Mapping[str, Lock]
    prompts: Mapping[str, str]
    ledger: Chain | None


@dataclass(frozen=True)
class Signed:
    """A statement whose signatures verified."""

    statement: Statement
    trusts: list[Trust]
    sha256: str  # of the file


@dataclass(frozen=True)
class VerifiedCertification:
    """A certification that passed every check; its verdict may still be "failed"."""

    certification: Certification
    lock: Lock
    trust: str
    sha256: str  # of the file
    ledger_checked: bool


def read_evidence(path: Path) -> bytes:
    """A signed file's bytes.

    Raises:
        EvidenceError: missing, unreadable, not a regular file, or too large to be evidence.
    """
    try:
        data = read_regular(path, 2 * MAX_BYTES + 1)
    except OSError as error:
        raise EvidenceError(f"the evidence cannot be read: {error.strerror}", where=str(path), remedy="check the name") from error
    if len(data) > 2 * MAX_BYTES:
        raise EvidenceError("this file is too large to be evidence", where=str(path), remedy="check the name")
    return data


def open_signed(data: bytes, where: str, trust: TrustStore) -> Signed:
    """Checks 1 to 3 but for the predicate type.

    Raises:
        EvidenceError: naming the check that failed.
    """
    envelope = read_envelope(data, where)
    trusts = trust.verify(envelope, where)
    return Signed(read_statement(envelope.payload, where), trusts, hashlib.sha256(data).hexdigest())


def verify_certification(data: bytes, where: str, context: Context) -> VerifiedCertification:
    """All checks.

    Raises:
        EvidenceError: naming the first check that failed.
    """
    return certification_of(open_signed(data, where, context.trust), where, context)


def certification_of(signed: Signed, where: str, context: Context) -> VerifiedCertification:
    """Checks 3 to 7 on a statement whose signatures verified. Raises as :func:`verify_certification`."""
    certification = read_predicate(signed.statement, where)
    if certification.evidence_class == "release" and not all(trust.may_release for trust in signed.trusts):
        raise EvidenceError(
            f"evidence of class release, signed by a {label_of(signed.trusts)}", where=where, remedy="have a release key sign it"
        )
    if sorted(signed.statement.subject, key=_by_name) != sorted(subjects_of(certification), key=_by_name):
        raise EvidenceError("its subjects are not the files that it speaks of", where=where, remedy=_AGAIN)
    lock = check_numbers(certification, context.locks, where)
    _check_prompts(lock, context.prompts, where)
    if context.ledger is not None:
        _check_ledger(certification, signed.sha256, context.ledger, where)
    return VerifiedCertification(certification, lock, label_of(signed.trusts), signed.sha256, context.ledger is not None)


def read_predicate(statement: Statement, where: str) -> Certification:
    """The certification in a statement.

    Raises:
        EvidenceError: another predicate type, or other fields than the format's.
    """
    if statement.predicate_type == certification_v1.PREDICATE_TYPE:
        return certification_v1.read(statement.predicate, where)
    if statement.predicate_type != PREDICATE_TYPE:
        raise EvidenceError(
            f"the predicate type is {statement.predicate_type}; this version reads {PREDICATE_TYPE} and version 1 of it",
            where=where,
            remedy="name a file that certify wrote; for a newer version, use the dgrctl that wrote it",
        )
    return convert(statement.predicate, Certification, what="certification", where=where)


def subjects_of(certification: Certification) -> tuple[Subject, ...]:
    """The files that a certification is about."""
    return (
        Subject.of("dgr-worker", certification.build.worker_sha256),
        Subject.of("dgr-reference", certification.build.reference_sha256),
        Subject.of(f"model/{certification.model.id}", certification.model.set_sha256),
        Subject.of(f"recipe/{certification.recipe.name}", certification.recipe.sha256),
        Subject.of(f"lock/{certification.lock.id}.v{certification.lock.version}", certification.lock.sha256),
    )


def check_numbers(certification: Certification, locks: Mapping[str, Lock], where: str) -> Lock:
    """Check 6.

    Raises:
        EvidenceError: the lock is missing or was changed, or numbers contradict it or each other.
    """
    name = f"{certification.lock.id}.v{certification.lock.version}"
    lock = locks.get(name)
    if lock is None:
        raise EvidenceError(
            f"the lock {name} that it was judged by is not here", where=where, remedy=f"restore certs/locks/{name}.toml"
        )
    if lock.digest() != certification.lock.sha256:
        raise EvidenceError(
            f"the lock {name} was changed after this result: it was {certification.lock.sha256}, now {lock.digest()}",
            where=where,
            remedy="restore the lock (git checkout); another threshold is a new version in a new file",
        )
    found = list(problems(certification, lock))
    if found:
        raise EvidenceError(
            f"its numbers contradict each other or the lock: {found[0]}",
            where=where,
            detail="\n".join(found[1:]) or None,
            remedy=_AGAIN,
        )
    return lock


def _check_prompts(lock: Lock, prompts: Mapping[str, str], where: str) -> None:
    name = lock.prompt_set.name
    remedy = f"restore certs/prompts/{name}.toml (git checkout); other prompts are a new set with a new lock"
    found = prompts.get(name)
    if found is None:
        raise EvidenceError(f"the prompt set {name} that it was measured with is not here", where=where, remedy=remedy)
    if found != lock.prompt_set.sha256:
        raise EvidenceError(
            f"the prompt set {name} was changed after this result: it was {lock.prompt_set.sha256}, now {found}",
            where=where,
            remedy=remedy,
        )


def _check_ledger(certification: Certification, sha256: str, ledger: Chain, where: str) -> None:
    position = certification.run.intent
    if position.index >= len(ledger.records):
        raise OlderLedgerError(
            f"this run is record {position.index} of its ledger, and the ledger here ends after {len(ledger.records)} records: "
            "the ledger here is older than this evidence, or it is another machine's",
            where=where,
            remedy="restore certs/ledger.jsonl from a copy, or remove evidence that belongs to another ledger",
        )
    run = ledger.run_of(position)
    if run is None:
        raise EvidenceError(f"the ledger holds no intent of this run at position {position.index}", where=where, remedy=_AGAIN)
    if run.record.nonce != certification.run.nonce or run.intent != Intent.of(certification):
        raise EvidenceError(f"the ledger's intent at position {position.index} is of another run", where=where, remedy=_AGAIN)
    if run.ending is None or isinstance(run.ending, Aborted):
        raise EvidenceError("the ledger says that this run did not reach its end", where=where, remedy=_AGAIN)
    if run.ending.evidence_sha256 != sha256 or run.ending.verdict != certification.verdict:
        raise EvidenceError("the ledger's outcome of this run names other evidence", where=where, remedy=_AGAIN)


def _by_name(subject: Subject) -> str:
    return subject.name
