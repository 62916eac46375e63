"""The matrix of a checkout: its inputs gathered, and the matrix as a signed file (``certs/matrix.dsse.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path

from dgrctl.errors import EvidenceError
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.fields import one_line
from dgrctl.evidence.keys import SigningKey
from dgrctl.evidence.ledger import Ledger
from dgrctl.evidence.lock import load_locks
from dgrctl.evidence.matrix import PREDICATE_TYPE, Inputs, LaneState, Matrix, lane_matrix
from dgrctl.evidence.parsing import convert
from dgrctl.evidence.statement import Subject, read_statement, statement_bytes
from dgrctl.evidence.trust import TrustStore
from dgrctl.evidence.verify import Context, Signed, read_evidence
from dgrctl.files import sha256_file, write_atomic
from dgrctl.layout import Layout

_AGAIN = "make it anew: dgrctl matrix --write"


def matrix_path(layout: Layout) -> Path:
    """Where the signed matrix lies."""
    return layout.certs / "matrix.dsse.json"


def gather_context(layout: Layout, trust: TrustStore) -> Context:
    """What evidence is verified against in this checkout.

    Raises:
        EvidenceError: the ledger's chain is broken.
        InputError: a lock is malformed.
    """
    ledger = Ledger(layout)
    locks = {lock.name: lock for lock in load_locks(layout.certs / "locks")}
    return Context(trust, locks, ledger.verify() if ledger.exists() else None)


def gather_inputs(layout: Layout, trust: TrustStore, lanes: Sequence[LaneState], today: date) -> Inputs:
    """Everything the matrix of this checkout depends on. Raises as :func:`gather_context`."""
    context = gather_context(layout, trust)
    evidence: dict[str, bytes] = {}
    unreadable: dict[str, str] = {}
    for path in sorted(layout.evidence.rglob("*.dsse.json")):
        name = one_line(path.relative_to(layout.evidence).as_posix())
        try:
            evidence[name] = read_evidence(path)
        except EvidenceError as error:
            unreadable[name] = one_line(error.what)
    ledger = context.ledger or Ledger(layout).verify()
    return Inputs(trust, context.locks, ledger, evidence, unreadable, today, lanes)


def write_matrix(layout: Layout, matrix: Matrix, key: SigningKey) -> Path:
    """Signs the matrix, about the ledger, the locks and the evidence that it was made from; returns the file.

    Raises:
        EvidenceError: there is nothing that it could be about.
        StorageError: the disk is full; an older signed matrix is unchanged.
    """
    payload = statement_bytes(tuple(_subjects(layout, matrix)), PREDICATE_TYPE, matrix)
    path = matrix_path(layout)
    convert(read_statement(payload, str(path)).predicate, Matrix, what="matrix", where=str(path))
    write_atomic(path, sign(payload, [key]))
    return path


def matrix_of(signed: Signed, where: str, context: Context, layout: Layout) -> tuple[Matrix, bool]:
    """The matrix in a statement whose signatures verified, and whether it could be made again from the files here.

    Where all its subjects are here unchanged, the matrix is made again from them, for its own date and lanes, and must be equal.
    Where none are (on a router), only its signature and its form can be checked.

    Raises:
        EvidenceError: other fields than the format's, rows that contradict themselves, a changed subject, or a row that does not
            follow from the subjects.
    """
    statement = signed.statement
    if statement.predicate_type != PREDICATE_TYPE:
        raise EvidenceError(f"the predicate type is {statement.predicate_type}, not {PREDICATE_TYPE}", where=where, remedy=_AGAIN)
    matrix = convert(statement.predicate, Matrix, what="matrix", where=where)
    for row in matrix.rows:
        if row.status == "advertisable" and (row.evidence is None or row.trust is None or row.evidence.expires < matrix.date):
            raise EvidenceError(
                f"the row of {row.recipe} on {row.lane} is advertisable without current evidence", where=where, remedy=_AGAIN
            )
    present = [subject for subject in statement.subject if (layout.certs / subject.name).is_file()]
    for subject in present:
        if sha256_file(layout.certs / subject.name) != subject.digest.sha256:
            raise EvidenceError(
                f"the matrix is older than certs/{subject.name}, which has changed since", where=where, remedy=_AGAIN
            )
    if len(present) != len(statement.subject):
        return matrix, False
    inputs = gather_inputs(layout, context.trust, matrix.lanes, date.fromisoformat(matrix.date))
    if lane_matrix(inputs).rows != matrix.rows:
        raise EvidenceError("its rows do not follow from the ledger and evidence that it names", where=where, remedy=_AGAIN)
    return matrix, True


def _subjects(layout: Layout, matrix: Matrix) -> Iterator[Subject]:
    """The files, named by their paths below ``certs``."""
    paths: Iterable[Path] = [layout.ledger, *sorted((layout.certs / "locks").glob("*.toml"))]
    for path in paths:
        if path.is_file():
            yield Subject.of(path.relative_to(layout.certs).as_posix(), sha256_file(path))
    for row in matrix.rows:
        if row.evidence is not None:
            yield Subject.of(f"evidence/{row.evidence.file}", row.evidence.sha256)
