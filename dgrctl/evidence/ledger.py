"""Appending to the ledger of certification runs: locked, synced to disk, all of a record or none of it.

A run appends its intent before it measures anything, then either its outcome or the reason why it was aborted. An intent that
nothing follows is a run that died.

A process killed while appending, or a full disk, leaves at most a torn last line. Readers report it; the next append moves it to
a file beside the ledger and says so in its record. Any other irregularity is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError
from dgrctl.evidence.certification import LedgerPosition
from dgrctl.evidence.fields import one_line
from dgrctl.evidence.ledger_chain import Chain, check_endings, read_chain
from dgrctl.evidence.ledger_records import Aborted, Intent, LedgerRecord, Outcome, SetAside
from dgrctl.evidence.parsing import parse_canonical
from dgrctl.files import read_regular, sha256_file, storage_errors, sync_folder, write_atomic
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock


def new_nonce() -> str:
    """A run's nonce."""
    return secrets.token_hex(16)


class Ledger:
    """The ledger of one checkout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.path: Path = layout.ledger

    def exists(self) -> bool:
        """Whether anything was ever recorded here."""
        return self.path.exists()

    def verify(self) -> Chain:
        """Reads and checks all of it; a missing file is an empty chain.

        Raises:
            EvidenceError: the chain is broken; the message names the line.
        """
        try:
            data = read_regular(self.path)
        except FileNotFoundError:
            return Chain()
        except OSError as error:
            raise EvidenceError(
                f"the ledger cannot be read: {error.strerror}", where=str(self.path), remedy="make it readable for this user"
            ) from error
        return read_chain(data, str(self.path))

    def intent(self, nonce: str, intent: Intent) -> LedgerPosition:
        """Records what a run is about to certify; returns where.

        Raises:
            EvidenceError: the chain is broken, or the nonce was used before.
            StorageError: the disk is full or read-only; nothing was appended.
        """
        return self._append(nonce, intent)

    def outcome(self, nonce: str, outcome: Outcome) -> LedgerPosition:
        """Records the verdict of the run whose intent ``outcome`` names. Raises as :meth:`intent`, also if that run has ended."""
        return self._append(nonce, outcome)

    def aborted(self, nonce: str, aborted: Aborted) -> LedgerPosition:
        """Records that a run ends without a verdict. Raises as :meth:`outcome`."""
        return self._append(nonce, msgspec.structs.replace(aborted, reason=one_line(aborted.reason)))

    def _append(self, nonce: str, body: Intent | Outcome | Aborted) -> LedgerPosition:
        with state_lock(self._layout, "ledger"):
            chain = self.verify()
            self._set_aside(chain.torn)
            record = LedgerRecord(
                schema=1,
                index=len(chain.records),
                previous=chain.head,
                time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                nonce=nonce,
                body=body,
                set_aside=self._unrecorded(chain),
            )
            line = canonical_json(msgspec.to_builtins(record))
            # An append can never be what breaks the ledger.
            parse_canonical(line, LedgerRecord, what="ledger record", where=str(self.path))
            check_endings([*chain.records, record], str(self.path))
            self._write((b"" if chain.ended else b"\n") + line + b"\n")
        return LedgerPosition(index=record.index, sha256=hashlib.sha256(line).hexdigest())

    def _set_aside(self, torn: bytes) -> None:
        if torn:
            write_atomic(self.path.with_name(f"{self.path.name}.torn-{hashlib.sha256(torn).hexdigest()[:12]}"), torn)
            with storage_errors(self.path):
                os.truncate(self.path, self.path.stat().st_size - len(torn))

    def _unrecorded(self, chain: Chain) -> tuple[SetAside, ...]:
        """Torn lines set aside that no record tells of yet: this append's, or one's that failed after setting it aside."""
        recorded = {kept.file for record in chain.records for kept in record.set_aside}
        return tuple(
            SetAside(file=path.name, sha256=sha256_file(path), bytes=path.stat().st_size)
            for path in sorted(self.path.parent.glob(f"{self.path.name}.torn-*"))
            if path.name not in recorded
        )

    def _write(self, data: bytes) -> None:
        with storage_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                before = os.fstat(descriptor).st_size
                try:
                    _write_all(descriptor, data)
                    os.fsync(descriptor)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, before)
                    raise
            finally:
                os.close(descriptor)
            sync_folder(self.path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
