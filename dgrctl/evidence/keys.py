"""Signing keys: ECDSA P-256 in unencrypted PKCS#8 PEM files that only their owner can read.

``.dgr/keys/local-dev.pem`` is made on this machine and vouches for nothing but that. ``DGR_SIGNING_KEY`` may name another file.
No message, log line or exception of this module carries a byte of a private key.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # public all the same

from dgrctl.errors import KeyFileError
from dgrctl.evidence.public_keys import PublicKey
from dgrctl.files import storage_errors, sync_folder
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock

KEY_VARIABLE = "DGR_SIGNING_KEY"

_MAX_BYTES = 64 * 1024
_PEM_LABEL = b"-----BEGIN PRIVATE KEY-----"
_INIT = "make one with: dgrctl keys init"


@dataclass(frozen=True)
class SigningKey:
    """A private key that is ready to sign, and the public half that names it."""

    path: Path
    public: PublicKey
    signer: CryptoSigner = field(repr=False)

    @property
    def keyid(self) -> str:
        return self.public.keyid


def local_key_path(layout: Layout) -> Path:
    """Where the local development key of this checkout lies."""
    return layout.keys / "local-dev.pem"


def signing_key_path(layout: Layout) -> Path:
    """The file that ``DGR_SIGNING_KEY`` names, or the local development key."""
    return Path(os.environ.get(KEY_VARIABLE) or local_key_path(layout))


def init_local_key(layout: Layout) -> bool:
    """Makes the local development key unless there is one; returns whether it did. An existing file is never touched.

    Raises:
        KeyFileError: the existing file is no usable key.
        StorageError: the key cannot be written.
    """
    path = local_key_path(layout)
    with state_lock(layout, "keys"):
        if os.path.lexists(path):
            load_key(path)
            return False
        private = ec.generate_private_key(ec.SECP256R1())
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                for leftover in path.parent.glob(f".{path.name}.*.partial"):
                    leftover.unlink()
                _create_private(path, pem)
        except FileExistsError as error:
            raise KeyFileError(
                "something else stands where the key is to be",
                where=str(error.filename2 or error.filename),
                remedy="move it away",
            ) from error
        return True


def signing_key(layout: Layout) -> SigningKey:
    """The key that signs here. Without any, the local development key is made first.

    Raises:
        KeyFileError: missing where ``DGR_SIGNING_KEY`` names it, or not usable.
    """
    path = signing_key_path(layout)
    if path == local_key_path(layout):
        init_local_key(layout)
    return load_key(path)


def load_key(path: Path) -> SigningKey:
    """Reads a signing key.

    Raises:
        KeyFileError: missing, readable by others, owned by another user (the file or a link to it), encrypted, truncated, not
            PKCS#8, or not ECDSA P-256.
    """
    try:
        _check_link(path, os.geteuid())
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise KeyFileError("there is no signing key", where=str(path), remedy=_INIT) from None
    except OSError as error:
        raise KeyFileError(
            f"the signing key cannot be opened: {error.strerror}", where=str(path), remedy="check that path and its folders"
        ) from error
    try:
        _check_status(os.fstat(descriptor), path, os.geteuid())
        pem = os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)
    private = _parse(pem, path)
    public = PublicKey.of(private.public_key())
    return SigningKey(path=path, public=public, signer=CryptoSigner(private, public.verifier))


def _create_private(path: Path, pem: bytes) -> None:
    """Writes a file that had mode 0600 from its first moment and appears under its name only when complete."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces what someone else put there in the meantime.
        os.link(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


def _check_link(path: Path, user: int) -> None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) and status.st_uid != user:
        raise KeyFileError(
            f"the signing key is a link that belongs to user {status.st_uid}",
            where=str(path),
            remedy="remove the link, or name the key itself in DGR_SIGNING_KEY",
        )


def _check_status(status: os.stat_result, path: Path, user: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError("the signing key is not a regular file", where=str(path), remedy="name a key file")
    if status.st_uid != user:
        raise KeyFileError(
            f"the signing key belongs to user {status.st_uid}, not to you ({user})",
            where=str(path),
            remedy="use a key of your own: unset DGR_SIGNING_KEY, or dgrctl keys init",
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"the signing key is open to others: its mode is {stat.S_IMODE(status.st_mode):04o}, not 0600",
            where=str(path),
            remedy=f"if nobody read it: chmod 600 {path}; otherwise remove it, dgrctl keys init, and certify again",
        )
    if status.st_size > _MAX_BYTES:
        raise KeyFileError(f"{status.st_size} bytes are too many for a key", where=str(path), remedy="name a key file")


def _parse(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    remedy = f"restore the file from a copy, or remove it and {_INIT}"
    if b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem or b"Proc-Type: 4,ENCRYPTED" in pem:
        raise KeyFileError(
            "the signing key is encrypted; keys with a passphrase are not supported",
            where=str(path),
            remedy="decrypt it: openssl pkey -in KEY -out NEW, with umask 077",
        )
    if not pem.startswith(_PEM_LABEL) or pem.count(b"-----BEGIN ") != 1:
        raise KeyFileError(
            "the signing key is not a single PKCS#8 PEM private key",
            where=str(path),
            remedy="convert it: openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW, with umask 077; or " + _INIT,
        )
    try:
        private = load_pem_private_key(pem, None)
    except Exception:
        # The parser's own message could quote what it could not parse.
        private = None
    if private is None:
        raise KeyFileError("the signing key is damaged or cut short", where=str(path), remedy=remedy)
    if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
        found = f"EC on {private.curve.name}" if isinstance(private, ec.EllipticCurvePrivateKey) else type(private).__name__
        raise KeyFileError(f"the signing key is {found}; DGR signs with ECDSA P-256", where=str(path), remedy=_INIT)
    return private
