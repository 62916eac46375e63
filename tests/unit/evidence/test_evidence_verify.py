"""Signed certifications: what verifies, and every reason for which one must not."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from certifications import certification, certify, changed, signed, the_lock
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError, InputError
from dgrctl.evidence import dsse
from dgrctl.evidence.certification import PREDICATE_TYPE, Certification, LedgerPosition
from dgrctl.evidence.dsse import PAYLOAD_TYPE, sign
from dgrctl.evidence.issue import write_certification
from dgrctl.evidence.keys import SigningKey, init_local_key, load_key, signing_key
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Aborted, Intent, Outcome
from dgrctl.evidence.matrix_file import gather_context
from dgrctl.evidence.statement import Statement, Subject, statement_bytes
from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY, TrustStore, local_trust
from dgrctl.evidence.verdict import reasons
from dgrctl.evidence.verify import VerifiedCertification, subjects_of, verify_certification
from dgrctl.layout import Layout


def verify(layout: Layout, data: bytes) -> VerifiedCertification:
    return verify_certification(data, "FILE", gather_context(layout, local_trust(layout)))


def refusal(layout: Layout, data: bytes) -> str:
    with pytest.raises(EvidenceError) as caught:
        verify(layout, data)
    assert caught.value.where == "FILE"
    return caught.value.what


def envelope(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    return found


def file_of(document: dict[str, Any]) -> bytes:
    return canonical_json(document) + b"\n"


def test_a_run_s_evidence_verifies(layout: Layout) -> None:
    path, run = certify(layout)
    found = verify(layout, path.read_bytes())
    assert found.certification == run
    assert found.certification.verdict == "passed"
    assert found.trust == LOCAL_DEVELOPMENT_KEY
    assert found.ledger_checked


def test_a_failed_run_is_signed_and_verifies_too(layout: Layout) -> None:
    path, _ = certify(layout, differing=3)
    found = verify(layout, path.read_bytes())
    assert found.certification.verdict == "failed"
    assert reasons(found.certification)[0].startswith("12 of ")
    assert "by up to 0.5" in reasons(found.certification)[0]


def test_a_slow_split_fails(layout: Layout) -> None:
    path, _ = certify(layout, split_us=13_000)
    found = verify(layout, path.read_bytes()).certification
    assert found.verdict == "failed"
    assert [gate.id for gate in found.gates if not gate.passed] == ["prefill", "decode"]


def test_base64_with_stray_bits_is_refused(layout: Layout) -> None:
    document = envelope(sign(b"{}", [signing_key(layout)]))
    assert document["payload"] == "e30="
    document["payload"] = "e31="
    assert base64.b64decode(document["payload"]) == b"{}"  # a lenient decoder takes it
    assert "base64 is not the one" in refusal(layout, file_of(document))


def test_the_mirrored_signature_is_refused(layout: Layout) -> None:
    """(r, n - s) verifies wherever (r, s) does; only one of the two is ours."""
    path, _ = certify(layout)
    document = envelope(path.read_bytes())
    r, s = decode_dss_signature(base64.b64decode(document["signatures"][0]["sig"]))
    mirrored = encode_dss_signature(r, dsse._P256_ORDER - s)
    document["signatures"][0]["sig"] = base64.b64encode(mirrored).decode()
    assert "smaller s" in refusal(layout, file_of(document))


@pytest.mark.parametrize("spoil", [lambda data: json.dumps(json.loads(data)).encode() + b"\n", lambda data: data[:-1]])
def test_another_spelling_of_the_envelope_is_refused(layout: Layout, spoil: Callable[[bytes], bytes]) -> None:
    path, _ = certify(layout)
    refusal(layout, spoil(path.read_bytes()))


def test_unknown_and_duplicate_members_are_refused(layout: Layout) -> None:
    path, _ = certify(layout)
    data = path.read_bytes()
    assert "unknown field" in refusal(layout, file_of({**envelope(data), "comment": "x"}))
    twice = data.replace(b'"payloadType":', b'"payloadType":"application/vnd.in-toto+json","payloadType":', 1)
    assert "twice" in refusal(layout, twice)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(payloadType="application/json"),
        lambda document: document.update(signatures=[]),
        lambda document: document.pop("signatures"),
        lambda document: document.update(payload=1),
    ],
)
def test_a_malformed_envelope_is_refused(layout: Layout, change: Callable[[dict[str, Any]], Any]) -> None:
    path, _ = certify(layout)
    document = envelope(path.read_bytes())
    change(document)
    assert "does not hold what it must" in refusal(layout, file_of(document))


def test_a_payload_that_is_not_canonical_is_refused_even_if_signed(layout: Layout) -> None:
    path, _ = certify(layout)
    payload = base64.b64decode(envelope(path.read_bytes())["payload"])
    spaced = json.dumps(json.loads(payload)).encode()
    assert "canonical" in refusal(layout, sign(spaced, [signing_key(layout)]))


@pytest.mark.parametrize("number", [b"1.5", b"1e3", b"NaN", b"9007199254740993"])
def test_a_payload_with_a_float_or_a_huge_number_is_refused_even_if_signed(layout: Layout, number: bytes) -> None:
    path, _ = certify(layout)
    payload = base64.b64decode(envelope(path.read_bytes())["payload"])
    assert b'"warmup":1' in payload
    spoiled = payload.replace(b'"warmup":1', b'"warmup":' + number)
    refusal(layout, sign(spoiled, [signing_key(layout)]))


def test_a_key_that_nothing_trusts_is_refused(layout: Layout, tmp_path: Path) -> None:
    path, _ = certify(layout)
    other = Layout(tmp_path / "other")
    init_local_key(other)
    with pytest.raises(EvidenceError, match="nothing on this machine trusts"):
        verify_certification(path.read_bytes(), "FILE", gather_context(layout, local_trust(other)))
    with pytest.raises(EvidenceError, match="nothing on this machine trusts"):
        verify_certification(path.read_bytes(), "FILE", gather_context(layout, TrustStore([])))


def second_key(tmp_path: Path) -> SigningKey:
    other = Layout(tmp_path / "second")
    init_local_key(other)
    return load_key(other.keys / "local-dev.pem")


def test_a_second_signature_by_an_unknown_key_is_refused(layout: Layout, tmp_path: Path) -> None:
    _, run = certify(layout)
    payload = statement_bytes(subjects_of(run), PREDICATE_TYPE, run)
    both = sign(payload, [signing_key(layout), second_key(tmp_path)])
    assert "trusts" in refusal(layout, both)


def test_a_signature_cannot_be_moved_to_another_key(layout: Layout, tmp_path: Path) -> None:
    path, _ = certify(layout)
    document = envelope(path.read_bytes())
    document["signatures"][0]["keyid"] = second_key(tmp_path).keyid
    assert "trusts" in refusal(layout, file_of(document))


def test_one_key_counts_once(layout: Layout) -> None:
    path, _ = certify(layout)
    document = envelope(path.read_bytes())
    document["signatures"] *= 2
    assert "one a key" in refusal(layout, file_of(document))
    assert len(json.loads(sign(b"{}", [signing_key(layout)] * 2))["signatures"]) == 1


def test_signatures_in_another_order_are_refused(layout: Layout, tmp_path: Path) -> None:
    document = json.loads(sign(b"{}", [signing_key(layout), second_key(tmp_path)]))
    document["signatures"].reverse()
    assert "order" in refusal(layout, file_of(document))


def test_a_signature_over_another_payload_is_refused(layout: Layout) -> None:
    one, two = certify(layout)[0], certify(layout)[0]
    document = envelope(one.read_bytes())
    document["payload"] = envelope(two.read_bytes())["payload"]
    assert "does not fit the payload" in refusal(layout, file_of(document))


def test_another_predicate_type_is_refused(layout: Layout) -> None:
    _, run = certify(layout)
    assert "predicate type" in refusal(layout, signed(layout, run, predicate_type="https://dgr.dev/lane-certification/v3"))


def test_no_subject_and_other_subjects_are_refused(layout: Layout) -> None:
    _, run = certify(layout)
    with pytest.raises(EvidenceError, match="no subject"):
        signed(layout, run, subjects=())
    for subjects in (subjects_of(run)[1:], (*subjects_of(run), Subject.of("more", "9" * 64))):
        assert "subjects" in refusal(layout, signed(layout, run, subjects=subjects))
    one = subjects_of(run)[0]
    with pytest.raises(EvidenceError, match="same name"):
        signed(layout, run, subjects=(one, one))


def spoiled_statement(layout: Layout, run: Certification, change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = json.loads(statement_bytes(subjects_of(run), PREDICATE_TYPE, run))
    change(document)
    return sign(canonical_json(document), [signing_key(layout)])


@pytest.mark.parametrize(
    "change",
    [
        lambda statement: statement.update(subject=[]),
        lambda statement: statement.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda statement: statement.update(extra=1),
        lambda statement: statement["subject"][0]["digest"].update(sha256="A" * 64),
        lambda statement: statement["subject"][0]["digest"].update(sha256="a" * 64 + "\n"),
        lambda statement: statement["subject"].append(statement["subject"][0]),
        lambda statement: statement["predicate"].pop("completion"),
        lambda statement: statement["predicate"]["completion"].update(marker="incomplete"),
        lambda statement: statement["predicate"].update(comment="x"),
        lambda statement: statement["predicate"].update(schema=1),
        lambda statement: statement["predicate"].update(schema=True),
        lambda statement: statement["predicate"].update(lane="../etc"),
        lambda statement: statement["predicate"]["speed"]["prefill"].update(ratio="1e0"),
        lambda statement: statement["predicate"]["parity"].update(runs=[]),
        lambda statement: statement["predicate"]["parity"]["totals"].update(logits_differing=-1),
    ],
)
def test_a_malformed_statement_is_refused_even_if_signed(layout: Layout, change: Callable[[dict[str, Any]], Any]) -> None:
    _, run = certify(layout)
    refusal(layout, spoiled_statement(layout, run, change))


def test_release_evidence_needs_more_than_a_local_key(layout: Layout) -> None:
    lock = layout.certs / "locks" / "cpu.tiny.v1.toml"
    lock.write_text(lock.read_text().replace('"real-hardware"', '"release"'))
    found = changed(certification(the_lock(layout)), "evidence_class", lambda _: "release")
    assert "class release" in refusal(layout, signed(layout, found))


def test_evidence_without_a_ledger_says_that_its_place_was_not_checked(layout: Layout) -> None:
    found = verify(layout, signed(layout, certification(the_lock(layout))))
    assert not found.ledger_checked


def test_a_missing_or_changed_lock_is_refused(layout: Layout) -> None:
    data = certify(layout)[0].read_bytes()
    lock = layout.certs / "locks" / "cpu.tiny.v1.toml"
    text = lock.read_text()
    lock.write_text(text.replace('min_ratio_decode = "0.80"', 'min_ratio_decode = "0.10"'))
    assert "was changed after this result" in refusal(layout, data)
    lock.unlink()
    assert "is not here" in refusal(layout, data)


def _replaced(value: object, _: object) -> object:
    return value


class TestLedger:
    """Evidence is bound to its run's place in the ledger."""

    def test_evidence_that_the_ledger_does_not_know(self, layout: Layout) -> None:
        certify(layout)
        stranger = changed(certification(the_lock(layout)), "run.intent", lambda _: LedgerPosition(index=7, sha256="0" * 64))
        assert "the ledger here is older than this evidence" in refusal(layout, signed(layout, stranger))
        forged = changed(stranger, "run.intent", lambda _: LedgerPosition(index=0, sha256="0" * 64))
        assert "no intent of this run" in refusal(layout, signed(layout, forged))

    def test_a_place_that_is_an_outcome_s(self, layout: Layout) -> None:
        _, run = certify(layout)
        place = Ledger(layout).verify().position(1)
        assert "no intent" in refusal(layout, signed(layout, changed(run, "run.intent", lambda _: place)))

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("run.nonce", "cd" * 16),
            ("recipe.sha256", "8" * 64),
            ("model.set_sha256", "8" * 64),
            ("build.record_sha256", "8" * 64),
        ],
    )
    def test_another_run_s_intent(self, layout: Layout, path: str, value: str) -> None:
        _, run = certify(layout)
        found = certification(the_lock(layout), nonce=value, intent=run.run.intent) if path == "run.nonce" else run
        found = changed(found, path, lambda _: value)
        assert "of another run" in refusal(layout, signed(layout, found))

    def test_a_run_without_outcome_or_aborted(self, layout: Layout) -> None:
        nonce = new_nonce()
        template = certification(the_lock(layout), nonce=nonce)
        place = Ledger(layout).intent(nonce, Intent.of(template))
        data = signed(layout, certification(the_lock(layout), nonce=nonce, intent=place))
        assert "did not reach its end" in refusal(layout, data)
        Ledger(layout).aborted(nonce, Aborted(intent=place.index, reason="killed"))
        assert "did not reach its end" in refusal(layout, data)

    def test_an_outcome_that_names_other_evidence(self, layout: Layout) -> None:
        _, run = certify(layout)
        again = changed(run, "run.finished", lambda _: "2026-11-29T12:11:00Z")
        assert "names other evidence" in refusal(layout, signed(layout, again))

    def test_nothing_inconsistent_is_signed(self, layout: Layout) -> None:
        nonce = new_nonce()
        place = Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout), nonce=nonce)))
        wrong = changed(certification(the_lock(layout), nonce=nonce, intent=place), "verdict", lambda _: "failed")
        with pytest.raises(EvidenceError, match="and its numbers say passed"):
            write_certification(layout, wrong, signing_key(layout))
        assert not layout.evidence.exists()

    def test_nothing_that_could_not_be_read_back_is_signed(self, layout: Layout) -> None:
        nonce = new_nonce()
        place = Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout), nonce=nonce)))
        found = certification(the_lock(layout), nonce=nonce, intent=place)
        for path, value in (("device.name", "two\nlines"), ("run.program", ""), ("run.finished", "2026-11-29T13:00:00+01:00")):
            with pytest.raises(EvidenceError, match="does not hold what it must"):
                write_certification(layout, changed(found, path, functools.partial(_replaced, value)), signing_key(layout))
        assert not layout.evidence.exists()

    def test_a_float_is_refused_when_building(self, layout: Layout) -> None:
        wrong = changed(certification(the_lock(layout)), "speed.prefill.ratio", lambda _: 0.95)
        with pytest.raises(InputError, match="float") as caught:
            signed(layout, wrong)
        assert caught.value.where is not None
        assert caught.value.where.endswith("speed.prefill.ratio")

    def test_an_outcome_is_written_once(self, layout: Layout) -> None:
        _, run = certify(layout)
        again = Outcome(intent=0, verdict="passed", evidence="x.dsse.json", evidence_sha256="0" * 64)
        with pytest.raises(EvidenceError, match="ends no open run"):
            Ledger(layout).outcome(run.run.nonce, again)


def test_the_statement_is_in_toto(layout: Layout) -> None:
    path, _ = certify(layout)
    document = envelope(path.read_bytes())
    statement = json.loads(base64.b64decode(document["payload"]))
    assert document["payloadType"] == PAYLOAD_TYPE
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {subject["name"] for subject in statement["subject"]} == {
        "dgr-worker",
        "dgr-reference",
        "model/tiny",
        "recipe/tiny.cpu-2stage",
        "lock/cpu.tiny.v1",
    }
    assert msgspec.convert(statement, Statement).predicate_type == PREDICATE_TYPE
