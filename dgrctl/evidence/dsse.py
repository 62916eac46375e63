"""DSSE envelopes in one exact form: a file's bytes follow from its payload and its signatures, and only those bytes are read.

The file is the RFC 8785 canonical JSON of ``{"payload", "payloadType", "signatures": [{"keyid", "sig"}, …]}`` and one line feed.
Base64 is the standard alphabet with padding; signatures are ordered by keyid, one a key. An ECDSA signature is DER with the
smaller of the two values of s, since (r, s) and (r, n - s) verify alike. So no byte of a file can be changed without a reader
noticing, and nobody without the key can make a second file of the same statement.

Signed is DSSE's pre-authentication encoding: ``DSSEv1 <len> <payloadType> <len> <payload>``
(https://github.com/secure-systems-lab/dsse).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import Signature  # type: ignore[attr-defined]  # public all the same

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError
from dgrctl.evidence.fields import Record, Sha256Hex
from dgrctl.evidence.keys import SigningKey
from dgrctl.evidence.parsing import parse_canonical
from dgrctl.evidence.public_keys import PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"

# Order of the base point of P-256 (SEC 2, secp256r1).
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

_REMEDY = "these are not the bytes that were signed; restore the file, or certify again"


class _Signature(Record, frozen=True):
    keyid: Sha256Hex
    sig: str


class _File(Record, frozen=True):
    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = msgspec.field(name="payloadType")
    signatures: Annotated[tuple[_Signature, ...], msgspec.Meta(min_length=1, max_length=64)]


@dataclass(frozen=True)
class SignedPayload:
    """An envelope that is well-formed; nothing is said yet about who signed it.

    Attributes:
        payload: The statement's bytes.
        signatures: Raw signature by keyid.
    """

    payload: bytes
    signatures: dict[str, bytes]


def sign(payload: bytes, keys: Sequence[SigningKey]) -> bytes:
    """The bytes of an envelope file, signed by each of ``keys`` (at least one, all different)."""
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    return _file_bytes(SignedPayload(payload, {key.keyid: _signature(envelope, key) for key in keys}))


def read_envelope(data: bytes, where: str) -> SignedPayload:
    """Reads an envelope file.

    Raises:
        EvidenceError: not exactly the bytes that :func:`sign` writes for this payload and these signatures, another payload type,
            or no signature.
    """
    if not data.endswith(b"\n"):
        raise EvidenceError("the file does not end with a line feed: it is cut short or changed", where=where, remedy=_REMEDY)
    file = parse_canonical(data[:-1], _File, what="envelope", where=where)
    keyids = [signature.keyid for signature in file.signatures]
    if keyids != sorted(set(keyids)):
        raise EvidenceError("signatures are not in order of their keyid, one a key", where=where, remedy=_REMEDY)
    payload = _decode(file.payload, "payload", where)
    signatures = {signature.keyid: _decode(signature.sig, "signature", where) for signature in file.signatures}
    return SignedPayload(payload, signatures)


def verify_signature(envelope: SignedPayload, key: PublicKey, where: str) -> None:
    """Checks the signature that ``key`` made.

    Raises:
        EvidenceError: there is none by this key, or it does not verify.
    """
    raw = envelope.signatures.get(key.keyid)
    if raw is None:
        raise EvidenceError(f"key {key.keyid} did not sign this", where=where, remedy=_REMEDY)
    if key.algorithm == "ecdsa-p256-sha256" and not _is_canonical_ecdsa(raw):
        raise EvidenceError(f"the signature by key {key.keyid} is not DER with the smaller s", where=where, remedy=_REMEDY)
    try:
        key.verifier.verify_signature(Signature(key.keyid, raw.hex()), Envelope(envelope.payload, PAYLOAD_TYPE, {}).pae())
    except (UnverifiedSignatureError, VerificationError) as error:
        raise EvidenceError(f"the signature by key {key.keyid} does not fit the payload", where=where, remedy=_REMEDY) from error


def _signature(envelope: Envelope, key: SigningKey) -> bytes:
    raw = bytes.fromhex(envelope.sign(key.signer).signature)
    return _with_low_s(raw) if key.public.algorithm == "ecdsa-p256-sha256" else raw


def _file_bytes(envelope: SignedPayload) -> bytes:
    document = {
        "payload": base64.b64encode(envelope.payload).decode("ascii"),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": keyid, "sig": base64.b64encode(raw).decode("ascii")} for keyid, raw in sorted(envelope.signatures.items())
        ],
    }
    return canonical_json(document) + b"\n"


def _decode(text: str, what: str, where: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvidenceError(f"the {what} is not base64: {error}", where=where, remedy=_REMEDY) from error
    # Unused bits before the padding could be anything; only zeros are what an encoder writes.
    if base64.b64encode(raw).decode("ascii") != text:
        raise EvidenceError(f"the {what}'s base64 is not the one an encoder writes", where=where, remedy=_REMEDY)
    return raw


def _with_low_s(raw: bytes) -> bytes:
    r, s = decode_dss_signature(raw)
    return encode_dss_signature(r, min(s, _P256_ORDER - s))


def _is_canonical_ecdsa(raw: bytes) -> bool:
    try:
        return _with_low_s(raw) == raw
    except ValueError:
        return False
