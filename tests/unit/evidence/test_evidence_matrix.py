"""The lane matrix: what is advertisable, and every way to be dark."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import socket
from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec
import pytest
from certifications import DEVICE, LANES, certification, certify, changed, on, signed, the_lock

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError, IncompleteEvidenceError, OlderLedgerError
from dgrctl.evidence.certification import Device
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.issue import write_certification
from dgrctl.evidence.keys import init_local_key, local_key_path, signing_key
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Aborted, Intent, Outcome
from dgrctl.evidence.lock import load_lock
from dgrctl.evidence.matrix import PREDICATE_TYPE, File, Matrix, Row, lane_matrix
from dgrctl.evidence.matrix_file import (
    VERSION_1,
    gather_context,
    gather_inputs,
    matrix_of,
    matrix_path,
    subjects_of,
    write_matrix,
)
from dgrctl.evidence.statement import Subject, statement_bytes
from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY, local_trust
from dgrctl.evidence.verify import open_signed
from dgrctl.layout import Layout

TODAY = on("2026-12-01")


def matrix(layout: Layout, today: date = TODAY) -> Matrix:
    return lane_matrix(gather_inputs(layout, local_trust(layout), LANES, today))


def row(layout: Layout, recipe: str | None = "tiny.cpu-2stage", lane: str = "cpu", today: date = TODAY) -> Row:
    (found,) = [row for row in matrix(layout, today).rows if (row.lane, row.recipe) == (lane, recipe)]
    return found


def test_without_evidence_every_lane_is_dark_with_its_reason(layout: Layout) -> None:
    rows = matrix(layout).rows
    assert [(row.lane, row.status) for row in rows] == [("cpu", "dark"), ("cuda", "dark")]
    assert rows[0].device == DEVICE.label
    assert "dgrctl certify --lane cpu" in rows[0].reason
    assert rows[1].device is None
    assert rows[1].reason == "no NVIDIA device"


def test_a_passed_run_is_advertisable_and_says_who_vouches(layout: Layout) -> None:
    path, run = certify(layout)
    found = row(layout)
    assert (found.status, found.device, found.model) == ("advertisable", DEVICE.label, "tiny")
    assert found.trust == LOCAL_DEVELOPMENT_KEY
    assert found.evidence is not None
    assert layout.evidence / found.evidence.file == path
    assert found.evidence.expires == "2027-02-27"
    assert found.evidence.worker_sha256 == run.build.worker_sha256
    assert found.evidence.logits_differing == 0
    assert [row.lane for row in matrix(layout).rows] == ["cpu", "cuda"]


def test_a_failed_run_is_dark_and_says_by_how_much(layout: Layout) -> None:
    certify(layout, recipe="tiny.cpu-2stage-bf16", wire="bf16", differing=3)
    found = row(layout, "tiny.cpu-2stage-bf16")
    assert found.status == "dark"
    assert found.trust == LOCAL_DEVELOPMENT_KEY
    assert found.reason.startswith("failed cpu.tiny.v1 on 2026-11-29: 12 of ")
    assert "by up to 0.5" in found.reason


def test_the_run_that_ended_last_decides(layout: Layout) -> None:
    certify(layout)
    certify(layout, differing=3)
    assert row(layout).status == "dark"
    certify(layout)
    assert row(layout).status == "advertisable"


def test_removing_a_failed_run_s_evidence_does_not_bring_the_passed_one_back(layout: Layout) -> None:
    certify(layout)
    path, _ = certify(layout, differing=3)
    path.unlink()
    found = row(layout)
    assert found.status == "dark"
    assert found.reason.endswith("is missing")
    assert found.evidence is None


def test_recipes_do_not_answer_for_each_other(layout: Layout) -> None:
    certify(layout)
    certify(layout, recipe="tiny.cpu-2stage-bf16", wire="bf16", differing=3)
    assert row(layout).status == "advertisable"
    assert row(layout, "tiny.cpu-2stage-bf16").status == "dark"


def test_tampered_evidence_is_reported_and_never_used(layout: Layout) -> None:
    path, _ = certify(layout)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"payload":"ey', b'"payload":"ez', 1))
    found = matrix(layout)
    (problem,) = found.problems
    assert layout.evidence / problem.file == path
    assert row(layout).status == "dark"
    assert problem.reason in row(layout).reason
    assert row(layout).trust is None


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\x00" * 100, b"[" * 50_000 + b"\n"])
def test_stray_files_are_reported_and_change_nothing(layout: Layout, content: bytes) -> None:
    certify(layout)
    stray = layout.evidence / "cpu" / "stray.dsse.json"
    stray.write_bytes(content)
    assert [problem.file for problem in matrix(layout).problems] == ["cpu/stray.dsse.json"]
    assert row(layout).status == "advertisable"


def test_a_file_name_that_is_no_text_is_shown_escaped(layout: Layout) -> None:
    certify(layout)
    stray = os.fsencode(layout.evidence) + b"/\xff\x1b[31m.dsse.json"
    with open(stray, "wb"):  # noqa: PTH123 - a name that no Path prints
        pass
    (problem,) = matrix(layout).problems
    assert problem.file.isprintable()
    write_matrix(layout, matrix(layout), signing_key(layout))


def test_files_that_cannot_be_read_are_reported(layout: Layout) -> None:
    certify(layout)
    (layout.evidence / "folder.dsse.json").mkdir()
    huge = layout.evidence / "huge.dsse.json"
    huge.touch()
    with huge.open("r+b") as file:
        file.truncate(2**30)
    assert [problem.file for problem in matrix(layout).problems] == ["folder.dsse.json", "huge.dsse.json"]
    assert row(layout).status == "advertisable"


def test_evidence_that_the_ledger_does_not_know_counts_for_nothing(layout: Layout) -> None:
    certify(layout, recipe="tiny.cpu-3stage")
    stray = layout.evidence / "cpu" / "stray.dsse.json"
    stray.write_bytes(signed(layout, certification(the_lock(layout))))
    found = matrix(layout)
    assert "tiny.cpu-2stage" not in {row.recipe for row in found.rows}
    assert "the ledger holds no intent" in found.problems[0].reason


def test_without_its_ledger_there_is_no_matrix(layout: Layout) -> None:
    certify(layout)
    layout.ledger.unlink()
    with pytest.raises(OlderLedgerError, match="ends after 0 records"):
        matrix(layout)


def test_a_ledger_from_before_an_aborted_run_gives_no_matrix_where_a_signed_one_knows_better(layout: Layout) -> None:
    certify(layout)
    before = layout.ledger.read_bytes()
    nonce = new_nonce()
    place = Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout))))
    Ledger(layout).aborted(nonce, Aborted(intent=place.index, reason="a stage died"))
    write_matrix(layout, matrix(layout), signing_key(layout))
    layout.ledger.write_bytes(before)
    with pytest.raises(OlderLedgerError, match=r"the ledger here is older than this matrix: it has 2 records, .* from 4"):
        matrix(layout)


def test_a_ledger_from_before_a_failed_run_gives_no_matrix_where_its_evidence_is_left(layout: Layout) -> None:
    certify(layout)
    before = layout.ledger.read_bytes()
    certify(layout, differing=3)
    layout.ledger.write_bytes(before)
    with pytest.raises(OlderLedgerError, match="older than this evidence"):
        matrix(layout)


def test_edited_or_missing_prompts_darken_their_row(layout: Layout) -> None:
    certify(layout)
    prompts = layout.certs / "prompts" / "core.v1.toml"
    prompts.write_text(prompts.read_text() + "# edited\n")
    assert (row(layout).status, row(layout).cause) == ("dark", "unusable")
    assert "the prompt set core.v1 was changed after this result" in row(layout).reason
    prompts.unlink()
    assert "the prompt set core.v1 that it was measured with is not here" in row(layout).reason


def test_a_renamed_evidence_file_is_a_problem(layout: Layout) -> None:
    path, _ = certify(layout)
    path.rename(path.with_name("renamed.dsse.json"))
    found = matrix(layout)
    assert (row(layout).status, found.complete) == ("dark", False)
    assert [problem.file for problem in found.problems] == ["cpu/renamed.dsse.json", f"cpu/{path.name}"]
    assert f"the ledger names this evidence cpu/{path.name}" in found.problems[0].reason
    assert "is missing" in found.problems[1].reason


def test_a_copy_of_evidence_is_a_problem_and_changes_nothing(layout: Layout) -> None:
    path, _ = certify(layout)
    path.with_name("copy.dsse.json").write_bytes(path.read_bytes())
    assert [problem.file for problem in matrix(layout).problems] == ["cpu/copy.dsse.json"]
    assert row(layout).status == "advertisable"


def test_nothing_but_regular_files_is_read(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe without a writer would be waited for, and a device read for ever."""
    certify(layout)
    folder = layout.evidence
    os.mkfifo(folder / "a-fifo.dsse.json")
    (folder / "b-link-to-a-fifo.dsse.json").symlink_to(folder / "a-fifo.dsse.json")
    (folder / "c-device.dsse.json").symlink_to("/dev/zero")
    (folder / "d-loop.dsse.json").symlink_to(folder / "d-loop.dsse.json")
    (folder / "e-folder.dsse.json").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)  # the whole path is longer than a socket's address
        listener.bind("f-socket.dsse.json")
        found = matrix(layout)
    assert [problem.file[0] for problem in found.problems] == ["a", "b", "c", "d", "e", "f"]
    assert all(problem.sha256 is None for problem in found.problems)
    assert row(layout).status == "advertisable"


def test_a_ledger_that_was_cut_shorter_darkens_what_it_lost(layout: Layout) -> None:
    certify(layout)
    lines = layout.ledger.read_bytes().splitlines(keepends=True)
    layout.ledger.write_bytes(lines[0])
    assert row(layout).status == "dark"
    assert "did not reach its end" in matrix(layout).problems[0].reason


def test_a_broken_ledger_gives_no_matrix(layout: Layout) -> None:
    certify(layout)
    layout.ledger.write_bytes(layout.ledger.read_bytes().replace(b"x86-64-v3", b"x86-64-v4", 1))
    with pytest.raises(EvidenceError):
        matrix(layout)


def test_another_key_s_evidence_is_dark(layout: Layout) -> None:
    certify(layout)
    local_key_path(layout).unlink()
    init_local_key(layout)
    assert row(layout).status == "dark"
    assert "nothing on this machine trusts" in row(layout).reason
    local_key_path(layout).unlink()
    assert row(layout).status == "dark"


def test_evidence_expires(layout: Layout) -> None:
    certify(layout)
    assert row(layout, today=on("2027-02-27")).status == "advertisable"
    expired = row(layout, today=on("2027-02-28"))
    assert expired.status == "dark"
    assert expired.reason == "its evidence expired on 2027-02-27"


def test_evidence_from_the_future_is_dark(layout: Layout) -> None:
    certify(layout)
    assert row(layout, today=on("2026-11-29")).status == "advertisable"
    assert "in the future" in row(layout, today=on("2026-11-28")).reason


def test_a_changed_or_missing_lock_is_dark(layout: Layout) -> None:
    certify(layout)
    lock = layout.certs / "locks" / "cpu.tiny.v1.toml"
    lock.write_text(lock.read_text() + "# relaxed\n")
    assert "changed after this result" in row(layout).reason
    lock.unlink()
    assert row(layout).status == "dark"


def test_a_newer_lock_leaves_the_old_result_standing(layout: Layout) -> None:
    certify(layout)
    lock = layout.certs / "locks" / "cpu.tiny.v1.toml"
    newer = lock.read_text().replace("version = 1", "version = 2").replace("0.80", "0.90")
    (lock.parent / "cpu.tiny.v2.toml").write_text(newer)
    assert row(layout).status == "advertisable"


def test_evidence_of_another_class_is_dark(layout: Layout) -> None:
    lock = layout.certs / "locks" / "cpu.tiny.v1.toml"
    lock.write_text(lock.read_text().replace('"real-hardware"', '"real-model"'))
    nonce = new_nonce()
    template = changed(certification(the_lock(layout), nonce=nonce), "evidence_class", lambda _: "real-model")
    place = Ledger(layout).intent(nonce, Intent.of(template))
    write_certification(layout, changed(template, "run.intent", lambda _: place), signing_key(layout))
    assert row(layout).status == "dark"
    assert "of class real-model" in row(layout).reason


def test_another_device_keeps_its_own_row(layout: Layout) -> None:
    other = Device(name="Another CPU", isa="x86-64-v4", details={})
    certify(layout, device=other)
    rows = [row for row in matrix(layout).rows if row.lane == "cpu"]
    assert [(row.device, row.status) for row in rows] == [
        (other.label, "advertisable"),
        (DEVICE.label, "dark"),
    ]


def test_the_same_name_is_not_the_same_device(layout: Layout) -> None:
    certify(layout, device=Device(name=DEVICE.name, isa=DEVICE.isa, details={"sockets": "2"}))
    assert {row.status for row in matrix(layout).rows if row.device == DEVICE.label} == {"dark"}


def test_a_build_for_a_lower_isa_is_about_this_device(layout: Layout) -> None:
    certify(layout, device=Device(name=DEVICE.name, isa="x86-64-v2", details=DEVICE.details))
    assert [row.status for row in matrix(layout).rows if row.lane == "cpu"] == ["advertisable"]


def test_a_lane_that_is_unavailable_here_can_hold_another_machine_s_row(layout: Layout) -> None:
    lock = layout.certs / "locks" / "cpu.tiny.v1.toml"
    cuda = lock.read_text().replace('"cpu"', '"cuda"').replace("cpu.tiny", "cuda.tiny")
    (lock.parent / "cuda.tiny.v1.toml").write_text(cuda)
    judge = load_lock(lock.parent / "cuda.tiny.v1.toml")
    nonce = new_nonce()
    template = changed(certification(judge, nonce=nonce), "lane", lambda _: "cuda")
    place = Ledger(layout).intent(nonce, Intent.of(template))
    write_certification(layout, changed(template, "run.intent", lambda _: place), signing_key(layout))
    assert [(row.lane, row.status) for row in matrix(layout).rows] == [("cpu", "dark"), ("cuda", "advertisable")]


def test_runs_that_never_ended_are_dark(layout: Layout) -> None:
    nonce = new_nonce()
    place = Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout))))
    assert "is under way, or died" in row(layout).reason
    Ledger(layout).aborted(nonce, Aborted(intent=place.index, reason="a stage died"))
    assert row(layout).reason == "no run reached its end; the last was aborted: a stage died"
    certify(layout)
    assert row(layout).status == "advertisable"


def test_later_runs_without_an_end_are_told(layout: Layout) -> None:
    certify(layout)
    Ledger(layout).intent(new_nonce(), Intent.of(certification(the_lock(layout))))
    assert row(layout).status == "advertisable"
    assert row(layout).reason.endswith("later runs without an end: 1")


def test_one_run_s_evidence_does_not_serve_another(layout: Layout) -> None:
    certify(layout)
    first = Ledger(layout).verify().runs()[0].ending
    assert isinstance(first, Outcome)
    nonce = new_nonce()
    place = Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout))))
    Ledger(layout).outcome(nonce, msgspec.structs.replace(first, intent=place.index))
    assert row(layout).status == "dark"
    assert row(layout).reason.endswith("is another run's")


def test_it_is_a_pure_function(layout: Layout) -> None:
    certify(layout)
    certify(layout, recipe="tiny.cpu-2stage-bf16", differing=1)
    inputs = gather_inputs(layout, local_trust(layout), LANES, TODAY)
    backwards = {name: inputs.evidence[name] for name in reversed(list(inputs.evidence))}
    assert lane_matrix(inputs) == lane_matrix(dataclasses.replace(inputs, evidence=backwards))


class TestSignedFile:
    """``certs/matrix.dsse.json``."""

    @staticmethod
    def check(layout: Layout, data: bytes) -> Matrix:
        trust = local_trust(layout)
        return matrix_of(open_signed(data, "FILE", trust), "FILE", gather_context(layout, trust), layout)

    @staticmethod
    def written(layout: Layout) -> bytes:
        return write_matrix(layout, matrix(layout), signing_key(layout)).read_bytes()

    def test_it_verifies_and_can_be_made_again(self, layout: Layout) -> None:
        certify(layout)
        data = self.written(layout)
        assert matrix_path(layout).read_bytes() == data
        assert self.check(layout, data) == matrix(layout)
        statement = json.loads(base64.b64decode(json.loads(data)["payload"]))
        names = [subject["name"] for subject in statement["subject"]]
        assert names[0].startswith("evidence/cpu/tiny.cpu-2stage-")
        assert names[1:] == ["ledger.jsonl", "locks/cpu.tiny.v1.toml", "prompts/core.v1.toml"]

    def test_it_holds_no_byte_that_can_be_changed(self, layout: Layout) -> None:
        certify(layout)
        data = self.written(layout)
        for position in range(0, len(data), 7):
            tampered = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
            with pytest.raises(EvidenceError):
                self.check(layout, tampered)

    @pytest.mark.parametrize("file", ["ledger.jsonl", "locks/cpu.tiny.v1.toml", "prompts/core.v1.toml"])
    def test_it_is_refused_once_what_it_was_made_from_has_changed(self, layout: Layout, file: str) -> None:
        certify(layout)
        data = self.written(layout)
        if file == "ledger.jsonl":
            certify(layout, recipe="tiny.cpu-3stage")
        else:
            (layout.certs / file).write_text((layout.certs / file).read_text() + "# changed\n")
        reason = "older than the ledger here: it was made from 2 records, and the ledger has 4"
        if file != "ledger.jsonl":
            reason = f"certs/{file} is not the file that this matrix was made from"
        with pytest.raises(EvidenceError, match=reason) as caught:
            self.check(layout, data)
        assert caught.value.exit_code == 22

    @pytest.mark.parametrize("file", ["ledger.jsonl", "locks/cpu.tiny.v1.toml", "prompts/core.v1.toml", "evidence"])
    def test_what_cannot_be_made_again_is_not_verified(self, layout: Layout, file: str) -> None:
        certify(layout)
        data = self.written(layout)
        if file == "evidence":
            shutil.rmtree(layout.evidence)
        else:
            (layout.certs / file).unlink()
        with pytest.raises(IncompleteEvidenceError, match=r"its signature is good, but .* 1 of the 4 files") as caught:
            self.check(layout, data)
        assert f"missing: certs/{file}" in (caught.value.detail or "")

    def test_a_ledger_that_is_older_than_the_matrix_is_called_the_older(self, layout: Layout) -> None:
        certify(layout)
        before = layout.ledger.read_bytes()
        nonce = new_nonce()
        Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout))))
        data = self.written(layout)
        layout.ledger.write_bytes(before)
        with pytest.raises(OlderLedgerError, match="the ledger here is older than this matrix"):
            self.check(layout, data)

    def test_a_genuine_one_verifies_on_another_machine(self, layout: Layout, tmp_path: Path) -> None:
        certify(layout)
        data = self.written(layout)
        signer = signing_key(layout).public
        other = Layout(tmp_path / "elsewhere")
        shutil.copytree(layout.certs, other.certs)
        trust = local_trust(other, [signer])
        found = matrix_of(open_signed(data, "FILE", trust), "FILE", gather_context(other, trust), other)
        assert found.rows[0].status == "advertisable"

    @pytest.mark.parametrize(
        "subjects",
        [
            lambda about: about[1:],
            lambda about: (*about, Subject.of("evidence/cuda/none.dsse.json", "9" * 64)),
            lambda about: about[::-1],
        ],
    )
    def test_other_subjects_than_its_files_are_refused_even_if_signed(
        self, layout: Layout, subjects: Callable[[tuple[Subject, ...]], tuple[Subject, ...]]
    ) -> None:
        certify(layout)
        found = matrix(layout)
        payload = statement_bytes(subjects(subjects_of(found)), PREDICATE_TYPE, found)
        with pytest.raises(EvidenceError, match="subjects are not the files"):
            self.check(layout, sign(payload, [signing_key(layout)]))

    def test_a_forged_row_whose_files_are_not_here_is_not_verified(self, layout: Layout) -> None:
        certify(layout)
        found = matrix(layout)
        proof = found.rows[0].evidence
        assert proof is not None
        forged = msgspec.structs.replace(
            found.rows[0], lane="cuda", evidence=msgspec.structs.replace(proof, file="cuda/x.dsse.json")
        )
        with_row = msgspec.structs.replace(found, rows=(found.rows[0], forged))
        extra = File(name="evidence/cuda/x.dsse.json", sha256=proof.sha256)
        for wrong, error in (
            (with_row, EvidenceError),
            (msgspec.structs.replace(with_row, files=(*found.files, extra)), IncompleteEvidenceError),
        ):
            data = write_matrix(layout, wrong, signing_key(layout)).read_bytes()
            with pytest.raises(error):
                self.check(layout, data)

    @pytest.mark.parametrize("leave_out", [False, True])
    def test_one_that_names_fewer_problems_is_refused(self, layout: Layout, leave_out: bool) -> None:
        certify(layout)
        (layout.evidence / "stray.dsse.json").write_text("x")
        found = matrix(layout)
        assert not found.complete
        clean = msgspec.structs.replace(found, problems=(), complete=True)
        if leave_out:
            clean = msgspec.structs.replace(clean, files=tuple(file for file in found.files if "stray" not in file.name))
        data = write_matrix(layout, clean, signing_key(layout)).read_bytes()
        with pytest.raises(EvidenceError, match=r"leaves out|does not name everything"):
            self.check(layout, data)

    def test_its_sentences_are_not_compared(self, layout: Layout) -> None:
        certify(layout)
        reworded = changed(matrix(layout), "rows.0.reason", lambda _: "other words of another version")
        self.check(layout, write_matrix(layout, reworded, signing_key(layout)).read_bytes())

    def test_version_1_is_refused_by_its_name(self, layout: Layout) -> None:
        about, key = (Subject.of("x", "0" * 64),), signing_key(layout)
        data = sign(statement_bytes(about, VERSION_1, about[0]), [key])
        with pytest.raises(EvidenceError, match=r"version 1 \(lane-matrix/v1\)") as caught:
            self.check(layout, data)
        assert caught.value.remedy == "make it anew: dgrctl matrix --write"

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda found: changed(found, "rows.1.status", lambda _: "advertisable"), "without current evidence"),
            (lambda found: changed(found, "rows.0.trust", lambda _: None), "without current evidence"),
            (lambda found: changed(found, "rows.0.evidence.expires", lambda _: "2026-01-01"), "without current evidence"),
            (lambda found: changed(found, "rows.0.trust", lambda _: "release root"), "claims the trust"),
            (lambda found: changed(found, "rows", lambda rows: rows[:1]), "do not follow"),
            (lambda found: changed(found, "date", lambda _: "2026-11-28"), "do not follow"),
        ],
    )
    def test_rows_that_nothing_gives_are_refused_even_if_signed(
        self, layout: Layout, change: Callable[[Matrix], Matrix], reason: str
    ) -> None:
        certify(layout)
        wrong = change(matrix(layout))
        data = write_matrix(layout, wrong, signing_key(layout)).read_bytes()
        with pytest.raises(EvidenceError, match=reason):
            self.check(layout, data)

    def test_another_predicate_or_form_is_refused(self, layout: Layout) -> None:
        certify(layout)
        about, key = (Subject.of("x", "0" * 64),), signing_key(layout)
        for data in (
            sign(statement_bytes(about, "https://dgr.dev/lane-matrix/v3", matrix(layout)), [key]),
            sign(statement_bytes(about, PREDICATE_TYPE, about[0]), [key]),
        ):
            with pytest.raises(EvidenceError):
                self.check(layout, data)

    def test_a_matrix_about_nothing_is_not_signed(self, layout: Layout) -> None:
        (layout.certs / "locks" / "cpu.tiny.v1.toml").unlink()
        (layout.certs / "prompts" / "core.v1.toml").unlink()
        with pytest.raises(EvidenceError, match="no subject"):
            self.written(layout)

    def test_its_json_is_canonical_and_without_floats(self, layout: Layout) -> None:
        certify(layout)
        canonical_json(msgspec.to_builtins(matrix(layout)))
