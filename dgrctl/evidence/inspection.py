"""Signed files of any kind, looked at for a person or a script: what they are, and whether they verify."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from dgrctl.errors import DgrError, EvidenceError
from dgrctl.evidence import certification_v1
from dgrctl.evidence.certification import PREDICATE_TYPE as CERTIFICATION
from dgrctl.evidence.dsse import read_envelope
from dgrctl.evidence.fields import Record
from dgrctl.evidence.matrix import PREDICATE_TYPE as MATRIX
from dgrctl.evidence.matrix_file import VERSION_1 as MATRIX_V1
from dgrctl.evidence.matrix_file import gather_context, matrix_of
from dgrctl.evidence.public_keys import PublicKey
from dgrctl.evidence.stack_record import PREDICATE_TYPE as STACK
from dgrctl.evidence.stack_record import is_of_this_checkout, stack_record_of
from dgrctl.evidence.statement import Statement, read_statement
from dgrctl.evidence.trust import TrustStore, label_of, local_trust
from dgrctl.evidence.verify import Context, certification_of, open_signed, read_evidence
from dgrctl.layout import Layout


class Result(Record, frozen=True):
    """What verifying one file gave.

    Attributes:
        kind: "certification", "matrix" or "patch-stack"; null where the file is not verified.
        verdict: Of a certification.
        trust: Who vouches.
        notes: What was verified less than fully, and why.
        reason: Why it does not verify.
        exit_code: 0 where it verifies. 24: the signature is good, but the content could not be made again here.
    """

    file: str
    verified: bool
    kind: str | None = None
    verdict: str | None = None
    trust: str | None = None
    sha256: str | None = None
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    reason: str | None = None
    where: str | None = None
    remedy: str | None = None
    detail: str | None = None


class Signer(Record, frozen=True):
    """A signature's key, and what it is worth here; null: unknown."""

    keyid: str
    trust: str | None


class Shown(Record, frozen=True):
    """A signed file's content and the result of verifying it."""

    file: str
    statement: Statement
    signatures: tuple[Signer, ...]
    result: Result


def verify_files(layout: Layout, files: Iterable[Path], keys: Iterable[PublicKey] = ()) -> list[Result]:
    """Verifies each file; one that fails does not stop the others.

    Args:
        keys: Trusted beside this machine's own.

    Raises:
        KeyFileError, EvidenceError, InputError: this machine's own key, ledger or locks are unusable.
    """
    context = gather_context(layout, local_trust(layout, keys))
    return [_verify(layout, file, context) for file in files]


def show_file(layout: Layout, file: Path, keys: Iterable[PublicKey] = ()) -> Shown:
    """A file's content, whoever signed it. Raises as :func:`verify_files`, also if it is no signed statement at all."""
    context = gather_context(layout, local_trust(layout, keys))
    envelope = read_envelope(read_evidence(file), str(file))
    return Shown(
        file=str(file),
        statement=read_statement(envelope.payload, str(file)),
        signatures=tuple(_signer(keyid, context.trust) for keyid in envelope.signatures),
        result=_verify(layout, file, context),
    )


def _signer(keyid: str, store: TrustStore) -> Signer:
    trust = store.trust_of(keyid)
    return Signer(keyid=keyid, trust=trust.label if trust else None)


def _verify(layout: Layout, file: Path, context: Context) -> Result:
    try:
        return _verified(layout, file, context)
    except DgrError as error:
        return Result(
            file=str(file),
            verified=False,
            exit_code=error.exit_code,
            reason=error.what,
            where=error.where,
            remedy=error.remedy,
            detail=error.detail,
        )


def _verified(layout: Layout, file: Path, context: Context) -> Result:
    signed = open_signed(read_evidence(file), str(file), context.trust)
    result = Result(file=str(file), verified=True, trust=label_of(signed.trusts), sha256=signed.sha256)
    kind = signed.statement.predicate_type
    if kind in (CERTIFICATION, certification_v1.PREDICATE_TYPE):
        found = certification_of(signed, str(file), context)
        notes = () if found.ledger_checked else ("there is no ledger here: the run's place in it was not checked",)
        return msgspec.structs.replace(result, kind="certification", verdict=found.certification.verdict, notes=notes)
    if kind in (MATRIX, MATRIX_V1):
        matrix_of(signed, str(file), context, layout)
        return msgspec.structs.replace(result, kind="matrix")
    if kind == STACK:
        here = is_of_this_checkout(stack_record_of(signed, str(file)), layout)
        notes = () if here else ("the patches of this checkout are others: nothing was compared with them",)
        return msgspec.structs.replace(result, kind="patch-stack", notes=notes)
    raise EvidenceError(
        f"the predicate type {kind} is unknown", where=str(file), remedy=f"known are {CERTIFICATION}, {MATRIX} and {STACK}"
    )
