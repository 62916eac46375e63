"""Who may vouch for what on this machine.

There is no release root yet, so a machine trusts the keys it signs with itself, as what they are: local development keys. A root
in ``certs/trust/`` (see its README) will add keys with roles; everything that asks goes through :class:`TrustStore`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dgrctl.errors import EvidenceError, KeyFileError
from dgrctl.evidence.dsse import SignedPayload, verify_signature
from dgrctl.evidence.keys import load_key, local_key_path, signing_key_path
from dgrctl.evidence.public_keys import PublicKey
from dgrctl.layout import Layout

LOCAL_DEVELOPMENT_KEY = "local development key"
NAMED_KEY = "key named on the command line"


@dataclass(frozen=True)
class Trust:
    """What a signature by ``key`` is worth. ``label`` is shown wherever the signature counts for anything.

    Attributes:
        may_release: Whether it can carry evidence of class ``release``.
    """

    key: PublicKey
    label: str
    may_release: bool = False


class TrustStore:
    """The keys trusted here, by keyid."""

    def __init__(self, trusts: Iterable[Trust]) -> None:
        self._by_keyid: dict[str, Trust] = {}
        for trust in trusts:
            self._by_keyid.setdefault(trust.key.keyid, trust)

    def trust_of(self, keyid: str) -> Trust | None:
        """What this key's signature is worth; None: nothing."""
        return self._by_keyid.get(keyid)

    def verify(self, envelope: SignedPayload, where: str) -> list[Trust]:
        """Checks every signature of an envelope; returns what each is worth.

        Every signature must be by a trusted key and verify: one that cannot be checked could be changed unnoticed. Signatures are
        counted by unique public key; an envelope holds at most one of each.

        Raises:
            EvidenceError: a signature by an unknown key, or one that does not verify.
        """
        trusts = []
        for keyid in envelope.signatures:
            trust = self.trust_of(keyid)
            if trust is None:
                raise EvidenceError(
                    f"signed by key {keyid}, which nothing on this machine trusts",
                    where=where,
                    remedy="certify here, or name the signer's public key: dgrctl evidence verify --key KEY.pem FILE",
                )
            verify_signature(envelope, trust.key, where)
            trusts.append(trust)
        return trusts


def label_of(trusts: Iterable[Trust]) -> str:
    """All that vouches for something, as the matrix shows it."""
    return " and ".join(sorted({trust.label for trust in trusts}))


def local_trust(layout: Layout, named: Iterable[PublicKey] = ()) -> TrustStore:
    """The keys of this machine, and those named on the command line.

    Raises:
        KeyFileError: a key file is there and not usable.
    """
    trusts = []
    for path in dict.fromkeys((signing_key_path(layout), local_key_path(layout))):
        try:
            trusts.append(Trust(load_key(path).public, LOCAL_DEVELOPMENT_KEY))
        except KeyFileError:
            if path.exists() or path != local_key_path(layout):
                raise
    trusts.extend(Trust(key, NAMED_KEY) for key in named)
    return TrustStore(trusts)
