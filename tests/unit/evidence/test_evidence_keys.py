"""Signing keys: made once with mode 0600, refused whenever somebody else could have had a hand in them."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from dgrctl.errors import KeyFileError
from dgrctl.evidence import keys
from dgrctl.evidence.keys import KEY_VARIABLE, init_local_key, load_key, local_key_path, signing_key
from dgrctl.evidence.public_keys import PublicKey, load_public_key
from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY, NAMED_KEY, local_trust
from dgrctl.layout import Layout


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_key(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_init_makes_a_key_that_only_its_owner_can_read(layout: Layout) -> None:
    previous = os.umask(0)  # the loosest: the mode must not come from the umask
    try:
        assert init_local_key(layout)
    finally:
        os.umask(previous)
    path = local_key_path(layout)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_nlink == 1
    assert list(path.parent.iterdir()) == [path]


def test_the_key_is_closed_to_others_from_its_first_moment(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that holds the private key is created with mode 0600; no chmod has to follow."""
    opened: list[tuple[int, int]] = []
    real_open = os.open

    def watching(path: str | Path, flags: int, mode: int = 0o777, **more: int) -> int:
        if str(path).startswith(str(layout.keys)) and flags & os.O_CREAT:
            opened.append((flags, mode))
        return real_open(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watching)
    init_local_key(layout)
    assert [mode for _, mode in opened] == [0o600]
    assert all(flags & os.O_EXCL for flags, _ in opened)


def test_a_second_init_leaves_the_key_as_it_is(layout: Layout) -> None:
    init_local_key(layout)
    before = local_key_path(layout).read_bytes()
    assert not init_local_key(layout)
    assert local_key_path(layout).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"precious"])
def test_init_never_overwrites_what_is_no_key(layout: Layout, content: bytes) -> None:
    path = write_key(local_key_path(layout), content)
    with pytest.raises(KeyFileError):
        init_local_key(layout)
    assert path.read_bytes() == content


def test_init_does_not_follow_a_dangling_link(layout: Layout, tmp_path: Path) -> None:
    path = local_key_path(layout)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError):
        init_local_key(layout)
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_that_appeared_meanwhile_is_not_replaced(layout: Layout) -> None:
    path = write_key(local_key_path(layout), b"somebody else's")
    with pytest.raises(FileExistsError):
        keys._create_private(path, b"ours")
    assert path.read_bytes() == b"somebody else's"
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_init_left_is_cleared(layout: Layout) -> None:
    leftover = write_key(layout.keys / ".local-dev.pem.0123456789abcdef.partial", b"half a key")
    assert init_local_key(layout)
    assert not leftover.exists()


def test_a_key_folder_that_is_none_is_reported(layout: Layout) -> None:
    layout.state.mkdir()
    layout.keys.write_text("a file")
    with pytest.raises(KeyFileError, match="something else stands"):
        init_local_key(layout)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o602, 0o644, 0o777])
def test_a_key_that_others_can_touch_is_refused(layout: Layout, mode: int) -> None:
    init_local_key(layout)
    path = local_key_path(layout)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"its mode is {mode:04o}") as caught:
        load_key(path)
    assert f"chmod 600 {path}" in (caught.value.remedy or "")


def status_of(path: Path, **changes: int) -> os.stat_result:
    fields = ("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size", "st_atime", "st_mtime", "st_ctime")
    status = path.stat()
    return os.stat_result([changes.get(field, getattr(status, field)) for field in fields])


def test_a_key_of_another_user_is_refused(layout: Layout) -> None:
    init_local_key(layout)
    path = local_key_path(layout)
    with pytest.raises(KeyFileError, match="belongs to user"):
        keys._check_status(status_of(path, st_uid=os.geteuid() + 1), path, os.geteuid())


def test_a_link_of_another_user_is_refused(layout: Layout, tmp_path: Path) -> None:
    init_local_key(layout)
    link = tmp_path / "link.pem"
    link.symlink_to(local_key_path(layout))
    assert load_key(link).keyid == load_key(local_key_path(layout)).keyid
    with pytest.raises(KeyFileError, match="link that belongs to user"):
        keys._check_link(link, user=os.geteuid() + 1 if os.geteuid() else 1)


def test_a_link_to_a_key_that_others_can_read_is_refused(layout: Layout, tmp_path: Path) -> None:
    init_local_key(layout)
    local_key_path(layout).chmod(0o644)
    link = tmp_path / "link.pem"
    link.symlink_to(local_key_path(layout))
    with pytest.raises(KeyFileError, match="open to others"):
        load_key(link)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="not a regular file"):
        load_key(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(KeyFileError, match="not a regular file"):
        load_key(fifo)


def test_a_missing_key_says_how_to_make_one(layout: Layout) -> None:
    with pytest.raises(KeyFileError, match="no signing key") as caught:
        load_key(local_key_path(layout))
    assert "dgrctl keys init" in (caught.value.remedy or "")


P256 = ec.generate_private_key(ec.SECP256R1())
BAD_KEYS: list[tuple[str, Callable[[], bytes]]] = [
    ("EC on secp384r1", lambda: pem(ec.generate_private_key(ec.SECP384R1()))),
    ("EC on secp256k1", lambda: pem(ec.generate_private_key(ec.SECP256K1()))),
    ("signs with ECDSA P-256", lambda: pem(ed25519.Ed25519PrivateKey.generate())),
    ("signs with ECDSA P-256", lambda: pem(rsa.generate_private_key(65537, 2048))),
    ("damaged or cut short", lambda: pem(P256)[:-40]),
    ("damaged or cut short", lambda: pem(P256).replace(b"M", b"N", 1)),
    ("not a single PKCS#8", lambda: pem(P256)[20:]),
    ("not a single PKCS#8", lambda: pem(P256) * 2),
    ("not a single PKCS#8", lambda: P256.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())),
    ("not a single PKCS#8", lambda: P256.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)),
    ("not a single PKCS#8", lambda: b"\x00" * 100),
    ("encrypted", lambda: P256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))),
    ("encrypted", lambda: P256.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret"))),
    ("too many for a key", lambda: pem(P256) + b"#" * 70_000),
]


@pytest.mark.parametrize(("reason", "make"), BAD_KEYS)
def test_what_is_no_p256_key_is_refused(tmp_path: Path, reason: str, make: Callable[[], bytes]) -> None:
    path = write_key(tmp_path / "key.pem", make())
    with pytest.raises(KeyFileError) as caught:
        load_key(path)
    assert reason in caught.value.what
    assert caught.value.where == str(path)
    assert caught.value.remedy


def every_text_of(error: BaseException) -> str:
    texts = []
    current: BaseException | None = error
    while current is not None:
        texts += [repr(current), str(current), str(vars(current))]
        current = current.__cause__ or current.__context__
    return "\n".join(texts)


def test_no_private_byte_shows_anywhere(layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    init_local_key(layout)
    key = load_key(local_key_path(layout))
    secret = "".join(local_key_path(layout).read_text().splitlines()[1:-1])
    shown = f"{key!r} {key} {caplog.text}"
    damaged = write_key(tmp_path / "damaged.pem", local_key_path(layout).read_bytes()[:-60])
    with pytest.raises(KeyFileError) as caught:
        load_key(damaged)
    shown += every_text_of(caught.value)
    for begin in range(0, len(secret) - 8, 4):
        # The head of the document (algorithm and curve) is the same for every P-256 key.
        if begin > 48:
            assert secret[begin : begin + 8] not in shown


def test_signing_makes_the_local_key_where_there_is_none(layout: Layout) -> None:
    key = signing_key(layout)
    assert key.path == local_key_path(layout)
    assert signing_key(layout).keyid == key.keyid


def test_another_key_can_be_named(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_key(tmp_path / "ci.pem", pem(P256))
    monkeypatch.setenv(KEY_VARIABLE, str(path))
    assert signing_key(layout).path == path
    assert not local_key_path(layout).exists()
    trust = local_trust(layout).trust_of(signing_key(layout).keyid)
    assert trust is not None
    assert trust.label == LOCAL_DEVELOPMENT_KEY
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "absent.pem"))
    with pytest.raises(KeyFileError):
        signing_key(layout)
    with pytest.raises(KeyFileError):
        local_trust(layout)


def test_a_machine_without_a_key_trusts_nobody(layout: Layout) -> None:
    assert local_trust(layout).trust_of("0" * 64) is None


def test_a_local_key_that_is_unusable_is_not_passed_over(layout: Layout) -> None:
    write_key(local_key_path(layout), pem(P256), mode=0o644)
    with pytest.raises(KeyFileError):
        local_trust(layout)


def test_the_keyid_is_the_digest_of_the_public_key(layout: Layout) -> None:
    key = signing_key(layout).public
    der = load_pem_public_key(key.pem.encode()).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key.keyid == hashlib.sha256(der).hexdigest()


class TestPublicKeys:
    """Keys named on the command line."""

    def test_text_before_the_block_is_skipped(self, layout: Layout) -> None:
        key = signing_key(layout).public
        assert PublicKey.from_pem(b"keyid abc\n\n" + key.pem.encode(), "x") == key

    def test_ed25519_is_accepted(self, tmp_path: Path, layout: Layout) -> None:
        private = ed25519.Ed25519PrivateKey.generate()
        path = tmp_path / "ed.pem"
        path.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        key = load_public_key(path)
        trust = local_trust(layout, [key]).trust_of(key.keyid)
        assert trust is not None
        assert trust.label == NAMED_KEY

    @pytest.mark.parametrize(
        "make",
        [
            lambda: b"",
            lambda: b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            lambda: pem(P256),
            lambda: b"#" * 70_000,
            lambda: (
                rsa.generate_private_key(65537, 2048).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            ),
            lambda: (
                ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            ),
        ],
    )
    def test_what_signs_no_evidence_is_refused(self, tmp_path: Path, make: Callable[[], bytes]) -> None:
        path = tmp_path / "key.pem"
        path.write_bytes(make())
        with pytest.raises(KeyFileError) as caught:
            load_public_key(path)
        assert caught.value.where == str(path)

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(KeyFileError, match="cannot be read"):
            load_public_key(tmp_path / "absent.pem")
