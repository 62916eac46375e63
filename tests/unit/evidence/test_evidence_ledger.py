"""The ledger: what a chain proves, what breaks it, and how a torn end differs from tampering."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from certifications import certification, certify, the_lock

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_chain import GENESIS, read_chain
from dgrctl.evidence.ledger_records import Aborted, Intent, Outcome
from dgrctl.layout import Layout


@pytest.fixture
def ledger(layout: Layout) -> Ledger:
    """Three runs: passed, aborted, under way."""
    found = Ledger(layout)
    certify(layout)
    nonce = new_nonce()
    place = found.intent(nonce, intent(layout))
    found.aborted(nonce, Aborted(intent=place.index, reason="a stage died"))
    found.intent(new_nonce(), intent(layout))
    return found


def intent(layout: Layout) -> Intent:
    return Intent.of(certification(the_lock(layout)))


def test_no_ledger_is_an_empty_chain(layout: Layout) -> None:
    assert not Ledger(layout).exists()
    assert Ledger(layout).verify().records == ()
    assert Ledger(layout).verify().head == GENESIS


def test_records_are_chained_canonical_lines(ledger: Ledger) -> None:
    lines = ledger.path.read_bytes().splitlines()
    assert len(lines) == 5
    before = GENESIS
    for index, line in enumerate(lines):
        document = json.loads(line)
        assert canonical_json(document) == line
        assert (document["index"], document["previous"]) == (index, before)
        before = hashlib.sha256(line).hexdigest()
    assert ledger.verify().head == before


def test_runs_and_how_they_ended(ledger: Ledger) -> None:
    endings = [run.ending for run in ledger.verify().runs()]
    assert isinstance(endings[0], Outcome)
    assert isinstance(endings[1], Aborted)
    assert endings[2] is None


def test_a_position_is_where_the_record_stands(ledger: Ledger, layout: Layout) -> None:
    nonce = new_nonce()
    place = ledger.intent(nonce, intent(layout))
    chain = ledger.verify()
    assert place == chain.position(5)
    run = chain.run_of(place)
    assert run is not None
    assert run.record.nonce == nonce


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def rechained(documents: list[dict[str, Any]]) -> bytes:
    """A ledger in which every link is right, whatever the records say."""
    before, data = GENESIS, b""
    for document in documents:
        line = canonical_json({**document, "previous": before})
        before = hashlib.sha256(line).hexdigest()
        data += line + b"\n"
    return data


def test_no_byte_of_a_closed_record_can_be_changed(ledger: Ledger) -> None:
    """The last record is held by nothing inside the file; the evidence of its run holds it."""
    data = ledger.path.read_bytes()
    last = data.rstrip(b"\n").rindex(b"\n") + 1
    for position in range(last):
        tampered = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(EvidenceError):
            read_chain(tampered, "LEDGER")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda lines: lines[1:], "in the place of record 0"),
        (lambda lines: [lines[0], *lines[2:]], "in the place of record 1"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "in the place of record 0"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "in the place of record 2"),
    ],
)
def test_removed_moved_and_repeated_records_are_refused(
    ledger: Ledger, spoil: Callable[[list[bytes]], list[bytes]], reason: str
) -> None:
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    with pytest.raises(EvidenceError, match=reason) as caught:
        read_chain(b"".join(spoil(lines)), "LEDGER")
    assert caught.value.where is not None
    assert caught.value.where.startswith("LEDGER:")
    assert caught.value.remedy


def test_a_changed_record_is_refused_at_the_next(ledger: Ledger) -> None:
    documents = lines_of(ledger.path.read_bytes())
    documents[0]["body"]["combination"]["device"] = "Another CPU [x86-64-v4]"
    data = b"".join(canonical_json(document) + b"\n" for document in documents)
    with pytest.raises(EvidenceError, match="before this one was changed") as caught:
        read_chain(data, "LEDGER")
    assert caught.value.where == "LEDGER:2"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda records: records[0].update(nonce="ab" * 16), "ends no open run"),
        (lambda records: records[1]["body"].update(intent=4), "ends no open run"),
        (lambda records: records[3]["body"].update(intent=0), "ends no open run"),
        (lambda records: records[4].update(nonce=records[0]["nonce"]), "repeats an earlier run's nonce"),
        (lambda records: records[0].update(index=1), "in the place of record 0"),
        (lambda records: records[0].update(schema=2), "does not hold what it must"),
        (lambda records: records[0].update(extra=1), "unknown field"),
        (lambda records: records[0].pop("time"), "missing required field"),
        (lambda records: records[0].update(time="yesterday"), "does not hold what it must"),
        (lambda records: records[1]["body"].update(kind="success"), "does not hold what it must"),
        (lambda records: records[1]["body"].update(verdict="fine"), "does not hold what it must"),
    ],
)
def test_records_that_make_no_sense_are_refused_though_chained(
    ledger: Ledger, change: Callable[[list[dict[str, Any]]], Any], reason: str
) -> None:
    documents = lines_of(ledger.path.read_bytes())
    change(documents)
    with pytest.raises(EvidenceError, match=reason):
        read_chain(rechained(documents), "LEDGER")


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"\xff\xfe", b"{" * 100_000, b"1" * 10_000, b'{"a":1.5}'])
def test_garbage_between_records_is_refused(ledger: Ledger, line: bytes) -> None:
    lines = ledger.path.read_bytes().splitlines()
    with pytest.raises(EvidenceError):
        read_chain(b"\n".join([*lines[:2], line, *lines[2:]]) + b"\n", "LEDGER")


def test_another_spelling_of_a_record_is_refused(ledger: Ledger) -> None:
    first, rest = ledger.path.read_bytes().split(b"\n", 1)
    with pytest.raises(EvidenceError, match="canonical"):
        read_chain(json.dumps(json.loads(first)).encode() + b"\n" + rest, "LEDGER")


class TestTornEnd:
    """An append that was interrupted."""

    def test_every_possible_tear_is_reported_and_the_next_run_goes_on(self, ledger: Ledger, layout: Layout) -> None:
        whole = ledger.path.read_bytes()
        before = whole[: whole.rstrip(b"\n").rindex(b"\n") + 1]
        line = whole[len(before) : -1]
        for length in range(1, len(line)):
            chain = read_chain(before + line[:length], "LEDGER")
            assert chain.torn == line[:length]
            assert len(chain.records) == 4
        torn = line[: len(line) // 2]
        ledger.path.write_bytes(before + torn)
        ledger.intent(new_nonce(), intent(layout))
        record = ledger.verify().records[-1]
        (kept,) = record.set_aside
        assert (ledger.path.parent / kept.file).read_bytes() == torn
        assert kept.sha256 == hashlib.sha256(torn).hexdigest()
        assert kept.bytes == len(torn)
        assert ledger.verify().torn == b""
        ledger.intent(new_nonce(), intent(layout))
        assert ledger.verify().records[-1].set_aside == ()

    def test_a_whole_record_without_its_line_feed_counts(self, ledger: Ledger, layout: Layout) -> None:
        data = ledger.path.read_bytes()
        ledger.path.write_bytes(data[:-1])
        assert len(ledger.verify().records) == 5
        assert ledger.verify().torn == b""
        ledger.intent(new_nonce(), intent(layout))
        assert ledger.path.read_bytes().startswith(data)
        assert len(ledger.verify().records) == 6

    def test_zeros_that_a_power_loss_left_are_torn(self, ledger: Ledger) -> None:
        assert read_chain(ledger.path.read_bytes() + bytes(512), "LEDGER").torn == bytes(512)

    def test_a_whole_record_with_something_behind_it_is_tampering(self, ledger: Ledger) -> None:
        data = ledger.path.read_bytes()
        for tampered in (data[:-1] + b"X", data[:-1] + data[:-1].splitlines()[-1]):
            with pytest.raises(EvidenceError):
                read_chain(tampered, "LEDGER")

    def test_a_broken_chain_is_not_appended_to(self, ledger: Ledger, layout: Layout) -> None:
        data = ledger.path.read_bytes().replace(b"x86-64-v3", b"x86-64-v4", 1)
        ledger.path.write_bytes(data)
        with pytest.raises(EvidenceError):
            ledger.intent(new_nonce(), intent(layout))
        assert ledger.path.read_bytes() == data


def test_an_append_that_makes_no_sense_changes_nothing(ledger: Ledger, layout: Layout) -> None:
    data = ledger.path.read_bytes()
    used = ledger.verify().records[0].nonce
    with pytest.raises(EvidenceError, match="repeats"):
        ledger.intent(used, intent(layout))
    with pytest.raises(EvidenceError, match="ends no open run"):
        ledger.aborted(new_nonce(), Aborted(intent=4, reason="not this run's nonce"))
    with pytest.raises(EvidenceError, match="ends no open run"):
        ledger.aborted(used, Aborted(intent=0, reason="it has ended"))
    assert ledger.path.read_bytes() == data


@pytest.mark.parametrize("reason", ["", "two\nlines", "\x1b[31mred", "x" * 100_000, "\ud800", "\u202egnp"])
def test_any_reason_can_be_recorded_and_read_back(ledger: Ledger, layout: Layout, reason: str) -> None:
    nonce = new_nonce()
    place = ledger.intent(nonce, intent(layout))
    ledger.aborted(nonce, Aborted(intent=place.index, reason=reason))
    ending = ledger.verify().runs()[-1].ending
    assert isinstance(ending, Aborted)
    assert ending.reason.isprintable()
    assert 0 < len(ending.reason) <= 2000


def test_a_record_that_could_not_be_read_back_is_not_appended(ledger: Ledger, layout: Layout) -> None:
    data = ledger.path.read_bytes()
    wrong = msgspec.structs.replace(intent(layout), recipe_sha256="not a digest")
    with pytest.raises(EvidenceError, match="does not hold what it must"):
        ledger.intent(new_nonce(), wrong)
    with pytest.raises(EvidenceError, match="does not hold what it must"):
        ledger.intent("not a nonce", intent(layout))
    assert ledger.path.read_bytes() == data


def test_a_ledger_that_is_no_file_is_refused(layout: Layout) -> None:
    layout.ledger.mkdir()
    with pytest.raises(EvidenceError, match="cannot be read"):
        Ledger(layout).verify()
