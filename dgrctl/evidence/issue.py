"""Signing a certification: the file first, then its outcome in the ledger."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dgrctl.evidence.certification import PREDICATE_TYPE, Certification
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.keys import SigningKey
from dgrctl.evidence.ledger import Ledger
from dgrctl.evidence.ledger_records import Outcome
from dgrctl.evidence.lock import load_locks
from dgrctl.evidence.statement import read_statement, statement_bytes
from dgrctl.evidence.verify import check_numbers, read_predicate, subjects_of
from dgrctl.files import write_atomic
from dgrctl.layout import Layout


def write_certification(layout: Layout, certification: Certification, key: SigningKey) -> Path:
    """Signs a certification, passed or failed, and records its outcome; returns the file.

    The intent of its run must stand in the ledger. A kill between file and record leaves an aborted run, whose file counts for
    nothing.

    Raises:
        EvidenceError: its numbers contradict each other or the lock (nothing is signed that would not verify), or the ledger
            holds no open run for it.
        InputError: a number that canonical JSON does not hold.
        StorageError: the disk is full; the run counts as aborted.
    """
    name = f"{certification.recipe.name}-{certification.run.nonce}.dsse.json"
    path = layout.evidence / certification.lane / name
    check_numbers(certification, {lock.name: lock for lock in load_locks(layout.certs / "locks")}, str(path))
    payload = statement_bytes(subjects_of(certification), PREDICATE_TYPE, certification)
    # Structs made by a program are not validated until they are read.
    read_predicate(read_statement(payload, str(path)), str(path))
    data = sign(payload, [key])
    write_atomic(path, data)
    outcome = Outcome(
        intent=certification.run.intent.index,
        verdict=certification.verdict,
        evidence=path.relative_to(layout.evidence).as_posix(),
        evidence_sha256=hashlib.sha256(data).hexdigest(),
    )
    Ledger(layout).outcome(certification.run.nonce, outcome)
    return path
