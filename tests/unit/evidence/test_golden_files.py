"""Signed files that earlier versions wrote, committed as they were. They must verify for ever, or be refused with a remedy."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest

from dgrctl.errors import EvidenceError
from dgrctl.evidence.certification_v1 import PREDICATE_TYPE as VERSION_1
from dgrctl.evidence.dsse import read_envelope
from dgrctl.evidence.inspection import verify_files
from dgrctl.evidence.matrix import lane_matrix
from dgrctl.evidence.matrix_file import gather_inputs, matrix_path
from dgrctl.evidence.public_keys import load_public_key
from dgrctl.evidence.statement import read_statement
from dgrctl.evidence.trust import local_trust
from dgrctl.evidence.verdict import reasons
from dgrctl.evidence.verify import read_evidence, read_predicate
from dgrctl.layout import Layout

GOLDEN = Path(__file__).parent / "golden"


def checkout(tmp_path: Path, name: str) -> Layout:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    (tmp_path / name / "manifests" / "upstream").mkdir(parents=True)
    return Layout(tmp_path / name)


@pytest.mark.parametrize(("name", "verdict"), [("certification-v1", "passed"), ("failed-v1", "failed")])
def test_a_certification_of_version_1_verifies(tmp_path: Path, name: str, verdict: str) -> None:
    layout = checkout(tmp_path, name)
    (path,) = layout.evidence.rglob("*.dsse.json")
    (result,) = verify_files(layout, [path], [load_public_key(layout.root / "signer.pem")])
    assert (result.verified, result.kind, result.verdict, result.notes) == (True, "certification", verdict, ()), result


def test_the_reasons_of_version_1_are_gates_now() -> None:
    (path,) = (GOLDEN / "failed-v1").rglob("cpu/*.dsse.json")
    statement = read_statement(read_envelope(read_evidence(path), "FILE").payload, "FILE")
    assert statement.predicate_type == VERSION_1
    found = read_predicate(statement, "FILE")
    assert [gate.id for gate in found.gates if not gate.passed] == ["logits", "boundary-values", "prefill", "decode"]
    assert len(reasons(found)) == 4


@pytest.mark.parametrize("change", [{"reasons": ["because"]}, {"schema": 2}, {"gates": []}, {"comment": "x"}])
def test_version_1_with_other_reasons_or_fields_is_refused(change: dict[str, object]) -> None:
    (path,) = (GOLDEN / "failed-v1").rglob("cpu/*.dsse.json")
    statement = read_statement(read_envelope(read_evidence(path), "FILE").payload, "FILE")
    statement.predicate.update(change)
    with pytest.raises(EvidenceError):
        read_predicate(statement, "FILE")


def test_version_2_verifies_with_its_matrix(tmp_path: Path) -> None:
    layout = checkout(tmp_path, "version-2")
    files = [*sorted(layout.evidence.rglob("*.dsse.json")), matrix_path(layout)]
    results = verify_files(layout, files, [load_public_key(layout.root / "signer.pem")])
    assert [(result.verified, result.kind, result.verdict) for result in results] == [
        (True, "certification", "passed"),
        (True, "certification", "failed"),
        (True, "matrix", None),
    ]


def test_a_matrix_of_version_1_is_refused_and_its_evidence_still_counts(tmp_path: Path) -> None:
    layout = checkout(tmp_path, "certification-v1")
    trust = local_trust(layout, [load_public_key(layout.root / "signer.pem")])
    (result,) = verify_files(layout, [matrix_path(layout)], [load_public_key(layout.root / "signer.pem")])
    assert (result.verified, result.exit_code) == (False, 22)
    assert "version 1 (lane-matrix/v1)" in (result.reason or "")
    assert result.remedy == "make it anew: dgrctl matrix --write"
    found = lane_matrix(gather_inputs(layout, trust, [], date(2026, 12, 8)))
    assert [(row.status, row.cause) for row in found.rows] == [("advertisable", "passed")]
    assert found.complete
