"""Reading the ledger: the chain is checked whole, and a torn end is told from tampering.

A record's digest is the SHA-256 of its line without the line feed. Each record carries the digest of the one before it; the first
carries 64 zeros.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from dgrctl.errors import EvidenceError
from dgrctl.evidence.certification import LedgerPosition
from dgrctl.evidence.ledger_records import Aborted, Intent, LedgerRecord, Outcome
from dgrctl.evidence.parsing import parse_canonical

GENESIS = "0" * 64

_REMEDY = "restore the ledger from a copy; until it verifies no matrix is made and no run can start"


@dataclass(frozen=True)
class Run:
    """An intent and how it ended; ``ending`` None: the run died, or is still under way."""

    intent: Intent
    record: LedgerRecord
    ending: Outcome | Aborted | None
    ended_at: int | None  # index of the ending's record


@dataclass(frozen=True)
class Chain:
    """A ledger that verified.

    Attributes:
        records: In order.
        digests: Of each record.
        torn: What a killed or failed append left after the last whole record.
        ended: The last whole record has its line feed.
        sha256: Of the file's bytes.
    """

    records: tuple[LedgerRecord, ...] = ()
    digests: tuple[str, ...] = ()
    torn: bytes = b""
    ended: bool = True
    sha256: str = hashlib.sha256(b"").hexdigest()

    @property
    def head(self) -> str:
        """What the next record carries as ``previous``."""
        return self.digests[-1] if self.digests else GENESIS

    def position(self, index: int) -> LedgerPosition:
        """Index and digest of a record."""
        return LedgerPosition(index=index, sha256=self.digests[index])

    def runs(self) -> list[Run]:
        """Every intent with its ending, in order of the intents."""
        endings = {record.body.intent: record for record in self.records if not isinstance(record.body, Intent)}
        return [
            Run(intent=record.body, record=record, ending=_ending(endings.get(index)), ended_at=_index(endings.get(index)))
            for index, record in enumerate(self.records)
            if isinstance(record.body, Intent)
        ]

    def run_of(self, position: LedgerPosition) -> Run | None:
        """The run whose intent stands exactly there."""
        if position.index >= len(self.digests) or self.digests[position.index] != position.sha256:
            return None
        return next((run for run in self.runs() if run.record.index == position.index), None)


def read_chain(data: bytes, where: str) -> Chain:
    """Checks a ledger's bytes from the first record to the last.

    Raises:
        EvidenceError: a record that is malformed, not canonical, out of its place in the chain or contradicts an earlier one; the
            message names the line.
    """
    lines = data.split(b"\n")
    tail = lines.pop()
    torn = bool(tail) and _is_incomplete(tail)
    if tail and not torn:
        lines.append(tail)
    records: list[LedgerRecord] = []
    digests: list[str] = []
    for number, line in enumerate(lines, start=1):
        place = f"{where}:{number}"
        record = parse_canonical(line, LedgerRecord, what="ledger record", where=place)
        _check_link(record, records, digests, place)
        records.append(record)
        digests.append(hashlib.sha256(line).hexdigest())
    check_endings(records, where)
    return Chain(
        records=tuple(records),
        digests=tuple(digests),
        torn=tail if torn else b"",
        ended=not tail or torn,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _is_incomplete(tail: bytes) -> bool:
    """Whether a last line without line feed is the beginning of a record, as an interrupted append leaves it.

    A whole record is none: only its line feed is missing. A whole record with anything behind it is tampering.
    """
    try:
        json.JSONDecoder().raw_decode(tail.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return True
    return False


def _check_link(record: LedgerRecord, before: list[LedgerRecord], digests: list[str], place: str) -> None:
    if record.index != len(before):
        raise EvidenceError(f"record {record.index} stands in the place of record {len(before)}", where=place, remedy=_REMEDY)
    if record.previous != (digests[-1] if digests else GENESIS):
        raise EvidenceError("the record before this one was changed or replaced", where=place, remedy=_REMEDY)


def check_endings(records: list[LedgerRecord], where: str) -> None:
    """Every nonce starts one run, and every outcome or abortion ends one open run.

    Raises:
        EvidenceError: naming the line of the first record that does not.
    """
    for problem, index in _ending_problems(records):
        raise EvidenceError(problem, where=f"{where}:{index + 1}", remedy=_REMEDY)


def _ending_problems(records: list[LedgerRecord]) -> Iterator[tuple[str, int]]:
    nonces: set[str] = set()
    open_runs: dict[int, str] = {}
    for record in records:
        if isinstance(record.body, Intent):
            if record.nonce in nonces:
                yield "this intent repeats an earlier run's nonce", record.index
            nonces.add(record.nonce)
            open_runs[record.index] = record.nonce
        elif open_runs.pop(record.body.intent, None) != record.nonce:
            yield f"this record ends no open run: record {record.body.intent}, nonce {record.nonce}", record.index


def _ending(record: LedgerRecord | None) -> Outcome | Aborted | None:
    return record.body if record is not None and not isinstance(record.body, Intent) else None


def _index(record: LedgerRecord | None) -> int | None:
    return None if record is None else record.index
