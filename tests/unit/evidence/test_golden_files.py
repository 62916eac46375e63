"""Signed files that earlier versions wrote, committed as they were. They must verify for ever, or be refused with a remedy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dgrctl.errors import EvidenceError
from dgrctl.evidence.certification_v1 import PREDICATE_TYPE as VERSION_1
from dgrctl.evidence.dsse import read_envelope
from dgrctl.evidence.inspection import verify_files
from dgrctl.evidence.public_keys import load_public_key
from dgrctl.evidence.statement import read_statement
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
