"""What ``make certify`` signed in this checkout: it verifies, here and with openssl, and no changed byte of it does."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from documented import verify_with_openssl

from dgrctl.errors import EvidenceError
from dgrctl.evidence.dsse import read_envelope
from dgrctl.evidence.machine import lane_states
from dgrctl.evidence.matrix import Row, lane_matrix
from dgrctl.evidence.matrix_file import gather_context, gather_inputs
from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY, local_trust
from dgrctl.evidence.verify import Context, verify_certification
from dgrctl.layout import Layout


@pytest.fixture
def advertisable(layout: Layout) -> Row:
    """The row that ``make certify`` makes advertisable."""
    inputs = gather_inputs(layout, local_trust(layout), lane_states(), datetime.now(UTC).date())
    rows = [row for row in lane_matrix(inputs).rows if row.status == "advertisable" and row.lane == "cpu"]
    if not rows:
        pytest.fail("no row of the CPU lane is advertisable here; make certify", pytrace=False)
    return rows[0]


@pytest.fixture
def evidence(layout: Layout, advertisable: Row) -> Path:
    assert advertisable.evidence is not None
    return layout.evidence / advertisable.evidence.file


@pytest.fixture
def context(layout: Layout) -> Context:
    return gather_context(layout, local_trust(layout))


def test_its_numbers_are_those_that_were_asked_for(evidence: Path, advertisable: Row, context: Context) -> None:
    found = verify_certification(evidence.read_bytes(), str(evidence), context)
    totals = found.certification.parity.totals
    assert found.ledger_checked
    assert found.trust == advertisable.trust == LOCAL_DEVELOPMENT_KEY
    assert (totals.logits_differing, totals.boundary_values_differing, totals.tokens_differing) == (0, 0, 0)
    assert totals.logits_compared > 10**8
    assert totals.boundary_values_compared > 10**6


def test_no_byte_of_it_can_be_changed(evidence: Path, context: Context) -> None:
    """Every third; tests/faults changes every byte of a smaller file."""
    data = evidence.read_bytes()
    for position in range(0, len(data), 3):
        tampered = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(EvidenceError):
            verify_certification(tampered, "FILE", context)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_verifies_the_same_signature(evidence: Path, context: Context, tmp_path: Path) -> None:
    (keyid,) = read_envelope(evidence.read_bytes(), "FILE").signatures
    trust = context.trust.trust_of(keyid)
    assert trust is not None
    done = verify_with_openssl(evidence, trust.key.pem, tmp_path)
    assert (done.returncode, done.stdout) == (0, "Verified OK\n"), done.stderr
