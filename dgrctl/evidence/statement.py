"""in-toto Statements v1 (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md), in canonical JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError
from dgrctl.evidence.fields import Record, Sha256Hex, Text
from dgrctl.evidence.parsing import parse_canonical

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class Digest(Record, frozen=True):
    """A subject's digest."""

    sha256: Sha256Hex


class Subject(Record, frozen=True):
    """What a statement is about: a name and the SHA-256 of its bytes."""

    name: Text
    digest: Digest

    @classmethod
    def of(cls, name: str, sha256: str) -> Subject:
        return cls(name=name, digest=Digest(sha256=sha256))


class Statement(Record, frozen=True):
    """``predicate`` is read according to ``predicate_type`` by whoever knows that type, and by nobody else."""

    statement_type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: Annotated[tuple[Subject, ...], msgspec.Meta(min_length=1)]
    predicate_type: Text = msgspec.field(name="predicateType")
    predicate: dict[str, Any]


def statement_bytes(subjects: tuple[Subject, ...], predicate_type: str, predicate: msgspec.Struct) -> bytes:
    """The payload to sign.

    Raises:
        EvidenceError: no subject, or two of one name.
        InputError: the predicate holds a float or an integer beyond 2**53 - 1.
    """
    _check_subjects(subjects, "the statement to sign")
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": msgspec.to_builtins(subjects),
            "predicateType": predicate_type,
            "predicate": msgspec.to_builtins(predicate),
        }
    )


def read_statement(payload: bytes, where: str) -> Statement:
    """Reads a payload.

    Raises:
        EvidenceError: not canonical JSON, not an in-toto Statement v1, no subject, or two of one name.
    """
    statement = parse_canonical(payload, Statement, what="statement", where=where)
    _check_subjects(statement.subject, where)
    return statement


def _check_subjects(subjects: tuple[Subject, ...], where: str) -> None:
    names = [subject.name for subject in subjects]
    if not names:
        raise EvidenceError("a statement about nothing proves nothing: it has no subject", where=where, remedy="certify again")
    if len(set(names)) != len(names):
        raise EvidenceError("two subjects have the same name", where=where, remedy="certify again")
