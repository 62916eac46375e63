"""The records of the ledger (``certs/ledger.jsonl``, one canonical JSON object a line)."""

from __future__ import annotations

from typing import Literal

from dgrctl.evidence.certification import Certification, LockReference
from dgrctl.evidence.fields import Count, Name, Nonce, Positive, Record, Sha256Hex, Text, Timestamp, Verdict


class Combination(Record, frozen=True, order=True):
    """What is certified, and the identity of a matrix row."""

    lane: Name
    device: Text  # Device.label
    model: Name
    recipe: Name

    @classmethod
    def of(cls, certification: Certification) -> Combination:
        """The combination that a certification is about."""
        return cls(
            lane=certification.lane,
            device=certification.device.label,
            model=certification.model.id,
            recipe=certification.recipe.name,
        )

    def __str__(self) -> str:
        return f"{self.recipe} on {self.lane}, {self.device}"


class Intent(Record, frozen=True, tag_field="kind", tag="intent"):
    """What a run is about to certify, written before it measures anything."""

    combination: Combination
    lock: LockReference
    recipe_sha256: Sha256Hex
    model_set_sha256: Sha256Hex
    build_record_sha256: Sha256Hex

    @classmethod
    def of(cls, certification: Certification) -> Intent:
        """The intent that must stand in the ledger for this certification."""
        return cls(
            combination=Combination.of(certification),
            lock=certification.lock,
            recipe_sha256=certification.recipe.sha256,
            model_set_sha256=certification.model.set_sha256,
            build_record_sha256=certification.build.record_sha256,
        )


class Outcome(Record, frozen=True, tag_field="kind", tag="outcome"):
    """How a run ended that reached its end. ``evidence`` is the file's path below ``certs/evidence``, with "/"."""

    intent: Count  # the intent's index
    verdict: Verdict
    evidence: Text
    evidence_sha256: Sha256Hex


class Aborted(Record, frozen=True, tag_field="kind", tag="aborted"):
    """Why a run ended without a verdict."""

    intent: Count  # the intent's index
    reason: Text


class SetAside(Record, frozen=True):
    """A torn last line, found before this record was appended and moved to ``file``, beside the ledger."""

    file: Text
    sha256: Sha256Hex
    bytes: Positive


class LedgerRecord(Record, frozen=True):
    """One line. ``previous`` is the digest of the record before it."""

    schema: Literal[1]
    index: Count
    previous: Sha256Hex
    time: Timestamp
    nonce: Nonce  # the run's
    body: Intent | Outcome | Aborted
    set_aside: tuple[SetAside, ...]
