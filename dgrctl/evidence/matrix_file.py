"""The matrix of a checkout: its inputs gathered, and the matrix as a signed file (``certs/matrix.dsse.json``)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

from dgrctl.errors import EvidenceError, IncompleteEvidenceError, InputError, OlderLedgerError
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.fields import one_line
from dgrctl.evidence.keys import SigningKey
from dgrctl.evidence.ledger import Ledger
from dgrctl.evidence.ledger_chain import GENESIS, Chain
from dgrctl.evidence.lock import load_locks
from dgrctl.evidence.matrix import PREDICATE_TYPE, Inputs, LaneState, LedgerState, Matrix, Row, lane_matrix
from dgrctl.evidence.parsing import convert
from dgrctl.evidence.statement import Subject, read_statement, statement_bytes
from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY, TrustStore
from dgrctl.evidence.verify import Context, Signed, open_signed, read_evidence
from dgrctl.files import read_regular, write_atomic
from dgrctl.layout import Layout

VERSION_1 = "https://dgr.dev/lane-matrix/v1"

_AGAIN = "make it anew: dgrctl matrix --write"
_RESTORE = "restore certs/ledger.jsonl from a copy; records of runs are missing from the one that is here"


def matrix_path(layout: Layout) -> Path:
    """Where the signed matrix lies."""
    return layout.certs / "matrix.dsse.json"


def gather_context(layout: Layout, trust: TrustStore) -> Context:
    """What evidence is verified against in this checkout.

    Raises:
        EvidenceError: the ledger's chain is broken.
        InputError: a lock is malformed, or a prompt set cannot be read.
    """
    ledger = Ledger(layout)
    locks = {lock.name: lock for lock in load_locks(layout.certs / "locks")}
    prompts = {path.stem: _digest(path) for path in sorted((layout.certs / "prompts").glob("*.toml"))}
    return Context(trust, locks, prompts, ledger.verify() if ledger.exists() else None)


def gather_inputs(layout: Layout, trust: TrustStore, lanes: Sequence[LaneState], today: date) -> Inputs:
    """Everything the matrix of this checkout depends on. Raises as :func:`gather_context`.

    Raises:
        OlderLedgerError: the signed matrix that is here knows records that the ledger does not have.
    """
    context = gather_context(layout, trust)
    _check_known_records(layout, context)
    return _gather(layout, context, lanes, today)


def write_matrix(layout: Layout, matrix: Matrix, key: SigningKey) -> Path:
    """Signs the matrix, about the files that it was made from; returns the file.

    Raises:
        EvidenceError: there is nothing that it could be about.
        StorageError: the disk is full; an older signed matrix is unchanged.
    """
    payload = statement_bytes(subjects_of(matrix), PREDICATE_TYPE, matrix)
    path = matrix_path(layout)
    read_matrix(read_statement(payload, str(path)).predicate, str(path))
    write_atomic(path, sign(payload, [key]))
    return path


def subjects_of(matrix: Matrix) -> tuple[Subject, ...]:
    """The files that a matrix is about, named by their paths below ``certs``."""
    return tuple(Subject.of(file.name, file.sha256) for file in matrix.files)


def read_matrix(predicate: dict[str, object], where: str) -> Matrix:
    """The matrix in a predicate. Raises EvidenceError where it has other fields than the format's."""
    return convert(predicate, Matrix, what="matrix", where=where)


def matrix_of(signed: Signed, where: str, context: Context, layout: Layout) -> Matrix:
    """The matrix in a statement whose signatures verified.

    It is made again from the files that it names, for its own date and lanes, and must be equal in all but its sentences.

    Raises:
        IncompleteEvidenceError: files that it names are not here.
        OlderLedgerError: it knows records that the ledger here does not have.
        EvidenceError: another version, other subjects than its files, a file that changed, or content that does not follow.
    """
    statement = signed.statement
    if statement.predicate_type == VERSION_1:
        raise EvidenceError(
            "this matrix is of version 1 (lane-matrix/v1), which does not name its place in the ledger: it cannot be checked",
            where=where,
            remedy=_AGAIN,
        )
    if statement.predicate_type != PREDICATE_TYPE:
        raise EvidenceError(f"the predicate type is {statement.predicate_type}, not {PREDICATE_TYPE}", where=where, remedy=_AGAIN)
    matrix = read_matrix(statement.predicate, where)
    if statement.subject != subjects_of(matrix):
        raise EvidenceError("its subjects are not the files that it speaks of", where=where, remedy=_AGAIN)
    _check_rows(matrix, where)
    missing = [file.name for file in matrix.files if not (layout.certs / file.name).is_file()]
    if missing:
        raise IncompleteEvidenceError(
            "its signature is good, but its content could not be made again here: "
            f"{len(missing)} of the {len(matrix.files)} files that it was made from are not here",
            where=where,
            detail="\n".join(f"missing: certs/{name}" for name in missing),
            remedy="copy these files from where the matrix was made, or verify it there; do not rely on its rows before",
        )
    _check_ledger(matrix.ledger, context.ledger or Chain(), where)
    again = lane_matrix(_gather(layout, context, matrix.lanes, date.fromisoformat(matrix.date)))
    _check_files(matrix, again, where)
    _check_problems(matrix, again, where)
    if [_comparable(row) for row in matrix.rows] != [_comparable(row) for row in again.rows]:
        raise EvidenceError("its rows do not follow from the ledger and evidence that it names", where=where, remedy=_AGAIN)
    return matrix


def _gather(layout: Layout, context: Context, lanes: Sequence[LaneState], today: date) -> Inputs:
    evidence: dict[str, bytes] = {}
    unreadable: dict[str, str] = {}
    for path in sorted(layout.evidence.rglob("*.dsse.json")):
        name = one_line(path.relative_to(layout.evidence).as_posix())
        try:
            evidence[name] = read_evidence(path)
        except EvidenceError as error:
            unreadable[name] = one_line(error.what)
    ledger = context.ledger or Chain()
    return Inputs(context.trust, context.locks, context.prompts, ledger, evidence, unreadable, today, lanes)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError as error:
        raise InputError(
            f"the prompt set cannot be read: {error.strerror}", where=str(path), remedy="restore the file (git checkout)"
        ) from error


def _check_known_records(layout: Layout, context: Context) -> None:
    """Holds the ledger against the signed matrix that is here, if one of this version and by a trusted key is."""
    path = matrix_path(layout)
    known: LedgerState | None = None
    with contextlib.suppress(EvidenceError):
        signed = open_signed(read_evidence(path), str(path), context.trust)
        if signed.statement.predicate_type == PREDICATE_TYPE:
            known = read_matrix(signed.statement.predicate, str(path)).ledger
    if known is not None:
        _check_older(known, context.ledger or Chain(), str(path))


def _check_ledger(known: LedgerState, ledger: Chain, where: str) -> None:
    _check_older(known, ledger, where)
    if len(ledger.records) > known.records:
        raise EvidenceError(
            f"this matrix is older than the ledger here: it was made from {known.records} records, and the ledger has "
            f"{len(ledger.records)}",
            where=where,
            remedy=_AGAIN,
        )


def _check_older(known: LedgerState, ledger: Chain, where: str) -> None:
    if len(ledger.records) < known.records:
        raise OlderLedgerError(
            f"the ledger here is older than this matrix: it has {len(ledger.records)} records, and the matrix was made from "
            f"{known.records}",
            where=where,
            remedy=_RESTORE,
        )
    if (ledger.digests[known.records - 1] if known.records else GENESIS) != known.head:
        raise OlderLedgerError(
            f"the ledger here is not the one that this matrix was made from: record {known.records - 1} is another",
            where=where,
            remedy=_RESTORE,
        )


def _check_rows(matrix: Matrix, where: str) -> None:
    for row in matrix.rows:
        if row.status == "advertisable" and (row.evidence is None or row.trust is None or row.evidence.expires < matrix.date):
            raise EvidenceError(
                f"the row of {row.recipe} on {row.lane} is advertisable without current evidence", where=where, remedy=_AGAIN
            )
        if row.trust not in (None, LOCAL_DEVELOPMENT_KEY):
            raise EvidenceError(
                f"the row of {row.recipe} on {row.lane} claims the trust {row.trust!r}; the only one that a matrix can give in "
                f"this version is {LOCAL_DEVELOPMENT_KEY!r}",
                where=where,
                remedy=_AGAIN,
            )


def _check_files(matrix: Matrix, again: Matrix, where: str) -> None:
    here = {file.name: file.sha256 for file in again.files}
    named = {file.name: file.sha256 for file in matrix.files}
    for name, sha256 in named.items():
        if here.get(name) != sha256:
            raise EvidenceError(f"certs/{name} is not the file that this matrix was made from", where=where, remedy=_AGAIN)
    # A lock or a prompt set that came later changes no row. Evidence could.
    for name in sorted(here.keys() - named.keys()):
        if name.startswith(("evidence/", "ledger")):
            raise EvidenceError(f"this matrix leaves out certs/{name}, which is here", where=where, remedy=_AGAIN)


def _check_problems(matrix: Matrix, again: Matrix, where: str) -> None:
    told, found = ({(problem.file, problem.sha256) for problem in each.problems} for each in (matrix, again))
    if matrix.complete == bool(matrix.problems) or found - told:
        raise EvidenceError("it does not name everything that was not used for it", where=where, remedy=_AGAIN)
    if told - found:
        raise IncompleteEvidenceError(
            "its signature is good, but its content could not be made again here: it names problems that are not here",
            where=where,
            detail="\n".join(f"not here: certs/evidence/{file}" for file, _ in sorted(told - found, key=str)),
            remedy="verify it where it was made",
        )


def _comparable(row: Row) -> Row:
    """A row without its sentence, and with the trust that the signer gives to what any trusted key signed."""
    return msgspec.structs.replace(row, reason="-", trust=row.trust and LOCAL_DEVELOPMENT_KEY)
