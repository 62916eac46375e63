"""The keys, evidence and matrix commands, as a person and as a script use them; and the documented openssl command."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from certifications import certification, certify, the_lock
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from documented import verify_with_openssl
from securesystemslib.signer._crypto_signer import CryptoSigner

from dgrctl.cli.main import main
from dgrctl.evidence.certification import PREDICATE_TYPE
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.keys import SigningKey, init_local_key, load_key, local_key_path
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Intent
from dgrctl.evidence.public_keys import PublicKey
from dgrctl.evidence.statement import statement_bytes
from dgrctl.evidence.verify import subjects_of
from dgrctl.layout import Layout


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    return captured.out, captured.err


class TestKeys:
    """``dgrctl keys``."""

    def test_init_twice_and_show(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["keys", "init"]) == 0
        assert "made" in said(capsys)[1]
        assert stat.S_IMODE(local_key_path(layout).stat().st_mode) == 0o600
        assert main(["keys", "init"]) == 0
        out, err = said(capsys)
        assert (out, "nothing to do" in err) == ("", True)
        assert main(["keys", "show", "--json"]) == 0
        shown = json.loads(said(capsys)[0])
        assert shown["keyid"] == load_key(local_key_path(layout)).keyid
        assert shown["trust"] == "local development key"
        assert main(["keys", "show"]) == 0
        assert shown["public_pem"] in said(capsys)[0]

    def test_show_never_prints_the_private_key(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        init_local_key(layout)
        main(["keys", "show"])
        main(["keys", "show", "--json"])
        shown = "".join(said(capsys))
        assert "PRIVATE" not in shown
        # The tail of a PKCS#8 document repeats the public key; its middle is the secret.
        secret = "".join(local_key_path(layout).read_text().splitlines()[1:-1])[50:90]
        assert secret not in shown

    @pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.chmod(0o644)])
    def test_an_unusable_key_has_its_own_exit_code(
        self, layout: Layout, capsys: pytest.CaptureFixture[str], spoil: object
    ) -> None:
        init_local_key(layout)
        spoil(local_key_path(layout))  # type: ignore[operator]
        assert main(["keys", "show", "--json"]) == 23
        assert json.loads(said(capsys)[0])["error"]["class"] == "key"


class TestVerify:
    """``dgrctl evidence verify`` and ``show``."""

    def test_good_evidence(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        path, _ = certify(layout)
        assert main(["evidence", "verify", str(path)]) == 0
        out, err = said(capsys)
        assert out == f"verified: {path}: certification, verdict passed; trust: local development key\n"
        assert err == ""

    def test_a_bad_file_among_good_ones(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        good, bad = certify(layout)[0], certify(layout)[0]
        bad.write_bytes(bad.read_bytes()[:-1])
        assert main(["evidence", "verify", "--json", str(bad), str(good), str(layout.root / "absent")]) == 22
        results = json.loads(said(capsys)[0])["files"]
        assert [result["verified"] for result in results] == [False, True, False]
        assert "cut short" in results[0]["reason"]
        assert main(["evidence", "verify", str(bad), str(good)]) == 22
        out, err = said(capsys)
        assert out.startswith(f"verified: {good}")
        assert "does not verify" in err

    def test_every_changed_byte_gives_a_reason(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        path, _ = certify(layout)
        data = path.read_bytes()
        for position in range(0, len(data), 501):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            assert main(["evidence", "verify", str(path)]) == 22
            out, err = said(capsys)
            assert out == ""
            assert "does not verify: " in err

    def test_evidence_from_elsewhere_needs_its_key(
        self, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = certify(layout)[0].read_bytes()
        public = tmp_path / "signer.pem"
        public.write_text(load_key(local_key_path(layout)).public.pem)
        foreign = tmp_path / "foreign.dsse.json"
        foreign.write_bytes(data)
        shutil.rmtree(layout.state)
        layout.ledger.unlink()
        assert main(["evidence", "verify", str(foreign)]) == 22
        assert "nothing on this machine trusts" in said(capsys)[1]
        assert main(["evidence", "verify", "--key", str(public), str(foreign)]) == 0
        out, err = said(capsys)
        assert "trust: key named on the command line" in out
        assert "there is no ledger here" in err

    def test_an_ed25519_signature_is_accepted(self, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        private = ed25519.Ed25519PrivateKey.generate()
        public = PublicKey.of(private.public_key())
        key = SigningKey(path=tmp_path, public=public, signer=CryptoSigner(private, public.verifier))
        found = certification(the_lock(layout))
        foreign = tmp_path / "foreign.dsse.json"
        foreign.write_bytes(sign(statement_bytes(subjects_of(found), PREDICATE_TYPE, found), [key]))
        pem = tmp_path / "signer.pem"
        pem.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        assert main(["evidence", "verify", "--key", str(pem), str(foreign)]) == 0
        data = foreign.read_bytes()
        foreign.write_bytes(data.replace(b'"payload":"ey', b'"payload":"ez', 1))
        assert main(["evidence", "verify", "--key", str(pem), str(foreign)]) == 22
        said(capsys)

    def test_show(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        path, run = certify(layout, differing=3)
        assert main(["evidence", "show", str(path)]) == 0
        out = said(capsys)[0]
        for text in (run.run.nonce, "dgr-worker", "12 of 4300 differ, by up to 0.5", "verdict    failed", "because    12 of"):
            assert text in out
        assert main(["evidence", "show", "--json", str(path)]) == 0
        shown = json.loads(said(capsys)[0])
        assert shown["statement"]["predicate"]["verdict"] == "failed"
        assert shown["result"]["verified"]
        path.write_bytes(b"{}\n")
        assert main(["evidence", "show", str(path)]) == 22

    def test_show_says_when_what_it_shows_does_not_verify(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        path, _ = certify(layout)
        layout.ledger.write_bytes(layout.ledger.read_bytes().splitlines(keepends=True)[0])
        assert main(["evidence", "show", str(path)]) == 0
        out, err = said(capsys)
        assert "verdict    passed" in out
        assert "does not verify" in err

    def test_an_unknown_predicate(self, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        init_local_key(layout)
        found = certification(the_lock(layout))
        other = tmp_path / "other.dsse.json"
        payload = statement_bytes(subjects_of(found), "https://example.org/other/v1", found)
        other.write_bytes(sign(payload, [load_key(local_key_path(layout))]))
        assert main(["evidence", "verify", str(other)]) == 22
        assert "is unknown" in said(capsys)[1]


class TestLedger:
    """``dgrctl evidence ledger``."""

    def test_it_lists_runs_and_how_they_ended(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        certify(layout)
        Ledger(layout).intent(new_nonce(), Intent.of(certification(the_lock(layout))))
        with layout.ledger.open("ab") as file:
            file.write(b'{"body"')
        assert main(["evidence", "ledger", "--wide"]) == 0
        out, err = said(capsys)
        assert len(out.splitlines()) == 3
        assert "passed: cpu/" in out
        assert "counts as aborted" in out
        assert "interrupted" in err
        assert main(["evidence", "ledger", "--json"]) == 0
        shown = json.loads(said(capsys)[0])
        assert [record["body"]["kind"] for record in shown["records"]] == ["intent", "outcome", "intent"]
        assert shown["torn_bytes"] == 7

    def test_a_broken_chain_has_its_exit_code(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        certify(layout)
        layout.ledger.write_bytes(b"".join(layout.ledger.read_bytes().splitlines(keepends=True)[1:]))
        assert main(["evidence", "ledger"]) == 22
        assert main(["matrix"]) == 22
        assert f"{layout.ledger}:1" in said(capsys)[1]


class TestMatrix:
    """``dgrctl matrix``, with this machine's real lanes."""

    def test_json_has_the_names_that_scripts_rely_on(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        certify(layout)
        assert main(["matrix", "--json"]) == 0
        document = json.loads(said(capsys)[0])
        assert document["complete"] is True
        rows = document["rows"]
        assert {"lane", "device", "model", "recipe", "status", "reason", "trust"} <= set(rows[0])
        assert {row["status"] for row in rows} == {"advertisable", "dark"}
        assert {row["lane"] for row in rows} == {"cpu", "cuda", "rocm", "vulkan", "metal"}
        assert all(row["reason"] for row in rows)

    def test_the_table_is_for_people_and_plain_in_a_pipe(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        certify(layout)
        (layout.evidence / "stray.dsse.json").write_text("x")
        assert main(["matrix"]) == 26
        out, err = said(capsys)
        assert "advertisable" in out
        assert "local development key" in out
        assert "\x1b" not in out
        assert "not used: certs/evidence/stray.dsse.json" in err

    def test_write_signs_a_file_that_verifies(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        certify(layout)
        assert main(["matrix", "--write"]) == 0
        path = layout.certs / "matrix.dsse.json"
        assert str(path) in said(capsys)[1]
        assert main(["evidence", "verify", str(path)]) == 0
        assert "matrix; trust: local development key" in said(capsys)[0]
        assert main(["evidence", "show", str(path)]) == 0
        assert "advertisable" in said(capsys)[0]
        certify(layout)
        assert main(["evidence", "verify", str(path)]) == 22

    def test_a_script_learns_what_was_not_used_and_not_checked(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        evidence, _ = certify(layout)
        assert main(["matrix", "--write"]) == 0
        path = str(layout.certs / "matrix.dsse.json")
        kept = layout.ledger.read_bytes()
        said(capsys)
        layout.ledger.unlink()
        assert main(["evidence", "verify", "--json", path]) == 24
        (result,) = json.loads(said(capsys)[0])["files"]
        assert (result["verified"], result["exit_code"]) == (False, 24)
        assert result["reason"].startswith("its signature is good, but its content could not be made again here")
        assert main(["matrix"]) == 25
        layout.ledger.write_bytes(kept)
        evidence.rename(evidence.with_name("other.dsse.json"))
        assert main(["matrix", "--json"]) == 26
        out, err = said(capsys)
        assert json.loads(out)["complete"] is False
        assert "not used: certs/evidence/cpu/other.dsse.json" in err
        assert main(["evidence", "verify", path, str(layout.root / "absent")]) == 22


class TestStdout:
    """As other programs see it."""

    @staticmethod
    def dgrctl(*arguments: str | bytes, stdout: int | IO[bytes] = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "dgrctl", *arguments]
        return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)

    def test_a_full_disk_behind_it_is_reported(self, layout: Layout) -> None:
        with Path("/dev/full").open("wb") as full:
            done = self.dgrctl("evidence", "ledger", stdout=full)
        assert (done.returncode, b"standard output" in done.stderr) == (9, True)
        assert b"Traceback" not in done.stderr

    def test_a_file_name_that_is_no_utf8_is_valid_json(self, layout: Layout) -> None:
        done = self.dgrctl("evidence", "verify", "--json", b"/absent/\xff.dsse.json")
        assert done.returncode == 22
        assert json.loads(done.stdout)["files"][0]["file"] == "/absent/\udcff.dsse.json"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
class TestOpenssl:
    """The command in docs/evidence.md, run as it stands there."""

    @staticmethod
    def signer(capsys: pytest.CaptureFixture[str]) -> str:
        assert main(["keys", "show"]) == 0
        return said(capsys)[0]

    def test_it_verifies_the_same_signature(self, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for differing in (0, 3):
            path, _ = certify(layout, differing=differing)
            done = verify_with_openssl(path, self.signer(capsys), tmp_path)
            assert (done.returncode, done.stdout) == (0, "Verified OK\n"), done.stderr

    def test_it_refuses_another_payload_and_another_key(
        self, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, _ = certify(layout)
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"payload":"ey', b'"payload":"ez', 1))
        assert verify_with_openssl(path, self.signer(capsys), tmp_path).returncode != 0
        path.write_bytes(data)
        local_key_path(layout).unlink()
        init_local_key(layout)
        assert verify_with_openssl(path, self.signer(capsys), tmp_path).returncode != 0
