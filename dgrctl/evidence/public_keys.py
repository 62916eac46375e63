"""Public keys that verify signatures: ECDSA P-256 and ed25519, named by what they are and not by what somebody calls them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # public all the same

from dgrctl.errors import KeyFileError

_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class PublicKey:
    """A public key. ``keyid`` is the SHA-256 of its DER SubjectPublicKeyInfo, so one key has one keyid.

    Attributes:
        algorithm: "ecdsa-p256-sha256" or "ed25519".
        pem: SubjectPublicKeyInfo in PEM, as ``openssl pkey -pubout`` prints it.
    """

    keyid: str
    algorithm: str
    pem: str
    verifier: SSlibKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> PublicKey:
        """Wraps a key; an EC key must be on P-256."""
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        keyid = hashlib.sha256(der).hexdigest()
        return cls(
            keyid=keyid,
            algorithm="ecdsa-p256-sha256" if isinstance(key, ec.EllipticCurvePublicKey) else "ed25519",
            pem=key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii"),
            verifier=SSlibKey.from_crypto(key, keyid=keyid),
        )

    @classmethod
    def from_pem(cls, pem: bytes, where: str) -> PublicKey:
        """Reads a PEM SubjectPublicKeyInfo; text before it is ignored, as openssl does.

        Raises:
            KeyFileError: not a public key, or of a kind that signs no evidence.
        """
        begin = pem.find(b"-----BEGIN PUBLIC KEY-----")
        try:
            key = load_pem_public_key(pem[max(begin, 0) :])
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyFileError(
                "this is not a PEM public key", where=where, remedy="make one with: openssl pkey -in KEY -pubout"
            ) from error
        if isinstance(key, ed25519.Ed25519PublicKey):
            return cls.of(key)
        if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
            return cls.of(key)
        raise KeyFileError(
            "evidence is signed with ECDSA P-256 or ed25519; this key is neither", where=where, remedy="name the signer's key"
        )


def load_public_key(path: Path) -> PublicKey:
    """Reads a public key's file.

    Raises:
        KeyFileError: missing, too large, or no usable public key.
    """
    try:
        with path.open("rb") as file:
            pem = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise KeyFileError(
            f"the public key cannot be read: {error.strerror}", where=str(path), remedy="check the name"
        ) from error
    if len(pem) > _MAX_BYTES:
        raise KeyFileError("this file is too large for a key", where=str(path), remedy="name a PEM public key")
    return PublicKey.from_pem(pem, str(path))
