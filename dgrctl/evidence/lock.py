"""Locks: what a certification must reach, fixed before any result (``certs/locks/<id>.v<version>.toml``).

A lock is never edited after a run. Evidence names it by the SHA-256 of its bytes, so any edit orphans what was judged by it; a
changed threshold is a new version in a new file.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgrctl.documents import digested_toml
from dgrctl.errors import InputError
from dgrctl.evidence.fields import Date, Decimal, EvidenceClass, Name, Outputs, Positive, Record, Sha256Hex


class LockedPromptSet(Record, frozen=True):
    """The prompts, by the SHA-256 of the set's file and by their number."""

    name: Name
    sha256: Sha256Hex
    prompts: Positive


class LockedParity(Record, frozen=True):
    """Every prompt runs once for each of ``outputs``, with ``decode_steps`` decode calls after its prefill."""

    require: Literal["bit-identical"]
    decode_steps: Positive
    outputs: Annotated[tuple[Outputs, ...], msgspec.Meta(min_length=1)]


class LockedSpeed(Record, frozen=True):
    """Pairs of whole and split. The LOWER bound of each ratio's interval must be at or above its minimum.

    A lock has one of two rules (:mod:`dgrctl.evidence.looks`). With ``pairs`` and ``bootstrap_resamples``, it is judged once,
    after that many pairs. With ``looks``, it is judged after each of these numbers of pairs, until it is decided.

    Inside a pair the two take turns of ``decode_slice_tokens`` tokens; 0: each decodes in one piece, one after the other.
    """

    warmup: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    prompt_tokens: Positive
    generate_tokens: Annotated[int, msgspec.Meta(ge=2)]
    min_ratio_prefill: Decimal
    min_ratio_decode: Decimal
    confidence: Annotated[str, msgspec.Meta(pattern=r"^0\.[0-9]{1,6}$(?!\n)")]
    pairs: Annotated[int, msgspec.Meta(ge=5, le=1000)] = 0
    bootstrap_resamples: Annotated[int, msgspec.Meta(ge=1000, le=10_000)] = 0
    looks: Annotated[tuple[Annotated[int, msgspec.Meta(ge=5, le=1000)], ...], msgspec.Meta(max_length=10)] = ()
    decode_slice_tokens: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0

    @property
    def schedule(self) -> tuple[int, ...]:
        """The numbers of pairs at which the speed may be judged, in order."""
        return self.looks or (self.pairs,)

    @property
    def miss(self) -> Fraction:
        """The chance that one bound of one interval may miss the true ratio, where there are looks.

        Every look is another chance to be wrong, so the looks share what ``confidence`` leaves (Bonferroni's inequality).
        """
        return (1 - Fraction(self.confidence)) / 2 / len(self.looks)


class LockFile(Record, frozen=True):
    """The file's own fields."""

    schema: Literal[1]
    id: Name
    version: Positive
    lane: Name
    model: Name
    evidence_class: EvidenceClass = msgspec.field(name="class")
    valid_days: Annotated[int, msgspec.Meta(ge=1, le=3650)]
    locked_at: Date
    prompt_set: LockedPromptSet
    parity: LockedParity
    speed: LockedSpeed


class Lock(LockFile, frozen=True):
    """A lock with the SHA-256 of the bytes it was read from."""

    sha256: Sha256Hex

    def digest(self) -> str:
        """SHA-256 of the lock file's bytes, as ``sha256sum`` prints it."""
        return self.sha256

    @property
    def name(self) -> str:
        """``<id>.v<version>``, also the file's stem."""
        return f"{self.id}.v{self.version}"


def load_lock(path: Path) -> Lock:
    """Reads one lock.

    Raises:
        InputError: malformed or contradictory, with file, field and remedy.
    """
    document, sha256 = digested_toml(path, LockFile, what="lock")
    lock = Lock(**msgspec.structs.asdict(document), sha256=sha256)
    if path.name != f"{lock.name}.toml":
        raise InputError(
            f"this lock calls itself {lock.name}",
            where=f"{path}: id, version",
            remedy=f"name the file {lock.name}.toml, or correct the fields",
        )
    if len(set(lock.parity.outputs)) != len(lock.parity.outputs):
        raise InputError("an output kind stands twice", where=f"{path}: parity.outputs", remedy="name each kind once")
    if not Fraction(1, 2) <= Fraction(lock.speed.confidence) < 1:
        raise InputError(
            f"the confidence {lock.speed.confidence} is out of range",
            where=f"{path}: speed.confidence",
            remedy='write a decimal from "0.5" to below "1", such as "0.95"',
        )
    _check_looks(lock.speed, path)
    return lock


def _check_looks(speed: LockedSpeed, path: Path) -> None:
    once, looks = (speed.pairs > 0, speed.bootstrap_resamples > 0), speed.looks
    if once != (not looks, not looks):
        raise InputError(
            "a lock names either pairs and bootstrap_resamples, or looks",
            where=f"{path}: speed",
            remedy="write looks alone, such as looks = [15, 30, 60]",
        )
    if list(looks) != sorted(set(looks)):
        raise InputError(
            "the looks do not rise", where=f"{path}: speed.looks", remedy="write each number of pairs once, the smallest first"
        )
    if looks and Fraction(1, 2 ** looks[0]) > speed.miss:
        raise InputError(
            f"{looks[0]} pairs are too few: even if all of them agree, they do not reach the confidence {speed.confidence}",
            where=f"{path}: speed.looks",
            remedy="write a larger number of pairs for the first look",
        )


def load_locks(folder: Path) -> list[Lock]:
    """All locks in ``folder``, in order of file name. An empty or missing folder has none.

    Raises:
        InputError: one of them is malformed.
    """
    return [load_lock(path) for path in sorted(folder.glob("*.toml"))]
