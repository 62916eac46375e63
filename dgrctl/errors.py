"""One class and one exit code per kind of failure.

Every error tells a person what happened, where, and what to do next. The command line prints exactly that and exits with the
class's code; scripts branch on the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class DgrError(Exception):
    """Base of all failures that dgrctl reports.

    Args:
        what: What happened, one sentence, with the values that matter.
        where: The file, field, command or address it happened at.
        remedy: What to do next; a command where there is one.
        detail: Further lines (the tail of a log, a list), printed indented.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None, detail: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy
        self.detail = detail

    def as_dict(self) -> dict[str, object]:
        """The error as ``--json`` prints it."""
        error = {
            "class": self.kind,
            "what": self.what,
            "where": self.where,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
        }
        return {"error": error if self.detail is None else {**error, "detail": self.detail}}


class UsageError(DgrError):
    """The command line cannot be understood, or it contradicts itself."""

    exit_code = 2
    kind = "usage"


class InputError(DgrError):
    """A recipe, manifest, lock, prompt set or key is malformed or contradictory."""

    exit_code = 3
    kind = "input"


class ToolchainError(DgrError):
    """A program, package or hardware feature that this step needs is missing."""

    exit_code = 4
    kind = "toolchain"


class FetchError(DgrError):
    """Nothing that was tried could bring the upstream source or an artifact."""

    exit_code = 5
    kind = "fetch"


class IntegrityError(DgrError):
    """Bytes on disk are not the bytes that were recorded."""

    exit_code = 6
    kind = "integrity"


class PatchError(DgrError):
    """The patch stack does not apply, or does not give the tree that its lock names."""

    exit_code = 7
    kind = "patch"


class BuildError(DgrError):
    """CMake or the compiler failed, or built something other than what was asked for."""

    exit_code = 8
    kind = "build"


class StorageError(DgrError):
    """The disk is full, read-only, or a place that is refused."""

    exit_code = 9
    kind = "storage"


class StageError(DgrError):
    """A stage crashed, was killed, ran out of memory or cannot be reached."""

    exit_code = 10
    kind = "stage"


class AdmissionError(DgrError):
    """A stage refused a session because a bound was hit."""

    exit_code = 11
    kind = "admission"


class LockedError(DgrError):
    """Another process held a lock for longer than this command may wait.

    Args:
        facts: What ``--json`` says beside the words: the lock, the times in seconds, and who holds it.
    """

    exit_code = 12
    kind = "locked"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        detail: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(what, where=where, remedy=remedy, detail=detail)
        self.facts = dict(facts or {})

    def as_dict(self) -> dict[str, object]:
        """The error as ``--json`` prints it, with the facts."""
        error = super().as_dict()["error"]
        return {"error": {**error, **self.facts} if isinstance(error, dict) else error}


class CertificationFailed(DgrError):
    """The certification ran to its end and the verdict is: failed. Its evidence is signed and kept."""

    exit_code = 20
    kind = "certification-failed"


class CertificationVoid(DgrError):
    """The certification could not be judged (interrupted, environment changed, incomplete)."""

    exit_code = 21
    kind = "certification-void"


class EvidenceError(DgrError):
    """Evidence, ledger or matrix does not verify."""

    exit_code = 22
    kind = "evidence"


class IncompleteEvidenceError(EvidenceError):
    """A signature is good, but the files that its content was made from are not all here: the content was not checked."""

    exit_code = 24
    kind = "evidence-incomplete"


class OlderLedgerError(EvidenceError):
    """Signed evidence knows a record that the ledger here does not have: the ledger is older, or it is another one."""

    exit_code = 25
    kind = "ledger-older"


class UnusedEvidenceError(EvidenceError):
    """A matrix was made, but something under ``certs/evidence`` was not used for it."""

    exit_code = 26
    kind = "evidence-unused"


class KeyFileError(DgrError):
    """A signing key is missing, unreadable, or readable by others."""

    exit_code = 23
    kind = "key"
