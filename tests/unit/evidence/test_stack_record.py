"""The signed record of the applied stack: of what was proven only, the same for the same stack, refused where it was changed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from upstream_checkout import FIRST, SECOND, THIRD, Checkout

from dgrctl.cli.main import main
from dgrctl.errors import DgrError, EvidenceError, IntegrityError, PatchError
from dgrctl.evidence.dsse import read_envelope, sign
from dgrctl.evidence.keys import KEY_VARIABLE, SigningKey, load_key, signing_key
from dgrctl.evidence.stack_record import (
    PREDICATE_TYPE,
    StackRecord,
    materials,
    record_stack,
    stack_record_of,
    stack_record_path,
    subjects_of,
)
from dgrctl.evidence.statement import Subject, statement_bytes
from dgrctl.evidence.trust import local_trust
from dgrctl.evidence.verify import open_signed
from dgrctl.upstream.export import export
from dgrctl.upstream.series import load_lock
from dgrctl.upstream.stack import unapply


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Three patches, applied."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    made = Checkout(tmp_path, "stacked")
    monkeypatch.setenv("DGR_ROOT", str(made.layout.root))
    return made


@pytest.fixture
def key(checkout: Checkout) -> SigningKey:
    """The local development key."""
    return signing_key(checkout.layout)


def test_record_says_what_the_lock_and_the_workspace_are(checkout: Checkout, key: SigningKey) -> None:
    record, lock = record_stack(checkout.layout, key).record, load_lock(checkout.layout)
    assert (record.pin, record.upstream_tree, record.stack_digest) == (lock.pin, lock.upstream_tree, lock.stack_digest)
    assert (record.head, record.tree) == (checkout.workspace.resolve("HEAD"), checkout.workspace.resolve("HEAD^{tree}"))
    assert [patch.name for patch in record.patches] == [FIRST, SECOND, THIRD]
    assert record.changed_lines == 4
    assert [each["digest"] for each in materials(record)] == [
        {"gitCommit": lock.pin, "gitTree": lock.upstream_tree},
        {"sha256": lock.stack_digest},
        {"gitCommit": lock.head, "gitTree": lock.tree},
    ]


def test_a_second_record_of_the_same_stack_changes_nothing(checkout: Checkout, key: SigningKey) -> None:
    assert record_stack(checkout.layout, key).written
    before = stack_record_path(checkout.layout).read_bytes()
    assert not record_stack(checkout.layout, key).written
    assert stack_record_path(checkout.layout).read_bytes() == before


def test_the_same_stack_elsewhere_is_the_same_statement(checkout: Checkout, key: SigningKey, tmp_path: Path) -> None:
    other = Checkout(tmp_path / "elsewhere", "stacked")
    record_stack(checkout.layout, key)
    record_stack(other.layout, signing_key(other.layout))
    here, there = (read_envelope(stack_record_path(each.layout).read_bytes(), "x").payload for each in (checkout, other))
    assert here == there


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (lambda c: (c.layout.workspace / "README.md").write_text("changed"), IntegrityError),
        (lambda c: unapply(c.layout), PatchError),
        (lambda c: (c.layout.patches / FIRST).unlink(), PatchError),
        (lambda c: (c.layout.patches / "series.lock").unlink(), DgrError),
    ],
)
def test_nothing_is_signed_that_was_not_proven(
    checkout: Checkout, key: SigningKey, spoil: object, refusal: type[DgrError]
) -> None:
    spoil(checkout)  # type: ignore[operator]
    with pytest.raises(refusal):
        record_stack(checkout.layout, key)
    assert not stack_record_path(checkout.layout).exists()


def _signed(checkout: Checkout, record: StackRecord, subjects: tuple[Subject, ...], kind: str = PREDICATE_TYPE) -> StackRecord:
    data = sign(statement_bytes(subjects, kind, record), [load_key(checkout.layout.keys / "local-dev.pem")])
    return stack_record_of(open_signed(data, "file", local_trust(checkout.layout)), "file")


def test_a_record_that_contradicts_itself_is_refused_whoever_signed_it(checkout: Checkout, key: SigningKey) -> None:
    good = record_stack(checkout.layout, key).record
    subjects = tuple(subjects_of(good))
    assert _signed(checkout, good, subjects) == good
    with pytest.raises(EvidenceError, match="stack_digest"):
        _signed(checkout, msgspec.structs.replace(good, pin="0" * 40), subjects)
    with pytest.raises(EvidenceError, match="stack_digest"):
        _signed(checkout, msgspec.structs.replace(good, patches=good.patches[:2]), subjects[:3])
    with pytest.raises(EvidenceError, match="subjects"):
        _signed(checkout, good, subjects[:3])
    with pytest.raises(EvidenceError, match="predicate type"):
        _signed(checkout, good, subjects, "https://dgr.dev/other/v1")


def test_commands(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patch", "record", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["materials"][1]["digest"]["sha256"] == load_lock(checkout.layout).stack_digest
    path = told["file"]
    assert main(["evidence", "verify", path, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["files"]
    assert (result["verified"], result["kind"], result["notes"]) == (True, "patch-stack", [])
    assert main(["evidence", "show", path]) == 0
    checkout.commit_change("Core: fourth")
    export(checkout.layout)
    capsys.readouterr()
    assert main(["evidence", "verify", path, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["files"]
    assert "others" in result["notes"][0]
    data = bytearray(Path(path).read_bytes())
    data[60] ^= 1
    Path(path).write_bytes(data)
    assert main(["evidence", "verify", path]) == EvidenceError.exit_code
    assert main(["patch", "record"]) == 0
    assert main(["evidence", "verify", path]) == 0
