"""A signed file of a real run, changed byte by byte: none of the changes may verify."""

from __future__ import annotations

from pathlib import Path

import pytest
from certifications import certify, make_checkout

from dgrctl.errors import EvidenceError
from dgrctl.evidence.keys import KEY_VARIABLE
from dgrctl.evidence.matrix_file import gather_context
from dgrctl.evidence.trust import local_trust
from dgrctl.evidence.verify import Context, verify_certification


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, Context]:
    """A file that verifies, and what it verifies against."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    layout = make_checkout(tmp_path)
    data = certify(layout)[0].read_bytes()
    context = gather_context(layout, local_trust(layout))
    verify_certification(data, "FILE", context)
    return data, context


def edges(data: bytes) -> list[int]:
    """Positions where structure is dense (both ends hold all of it but the payload), and a sample of the payload."""
    return [*range(40), *range(40, len(data) - 260, 97), *range(len(data) - 260, len(data))]


def test_no_single_byte_can_be_changed(evidence: tuple[bytes, Context]) -> None:
    data, context = evidence
    for position in range(len(data)):
        # The lowest bit turns a base64 character into a neighbour; the sixth turns a letter's case.
        for bit in (0x01, 0x20):
            tampered = data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]
            with pytest.raises(EvidenceError):
                verify_certification(tampered, "FILE", context)


def test_no_byte_can_take_any_other_value(evidence: tuple[bytes, Context]) -> None:
    """All 255 other values, at the positions that no signature covers: the structure around the payload."""
    data, context = evidence
    for position in [*range(16), *range(len(data) - 8, len(data))]:
        for value in set(range(256)) - {data[position]}:
            with pytest.raises(EvidenceError):
                verify_certification(data[:position] + bytes([value]) + data[position + 1 :], "FILE", context)


@pytest.mark.parametrize("inserted", [b" ", b"\n", b"A", b"=", b"\x00", b"}", b"\xef\xbb\xbf"])
def test_no_byte_can_be_inserted(evidence: tuple[bytes, Context], inserted: bytes) -> None:
    data, context = evidence
    for position in [*edges(data), len(data)]:
        with pytest.raises(EvidenceError):
            verify_certification(data[:position] + inserted + data[position:], "FILE", context)


def test_no_byte_can_be_removed_and_no_end_cut_off(evidence: tuple[bytes, Context]) -> None:
    data, context = evidence
    for position in edges(data):
        for tampered in (data[:position], data[:position] + data[position + 1 :]):
            with pytest.raises(EvidenceError):
                verify_certification(tampered, "FILE", context)
