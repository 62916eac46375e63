"""Field types shared by the signed and locked formats.

Every pattern ends in ``$(?!\\n)``: a plain ``$`` would also match before a final line feed.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all structs in these formats: immutable, no unknown field."""


Sha256Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="SHA-256, lower-case hex")]
CommitHex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}$(?!\n)", description="git object name, lower-case hex")]
Nonce = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$(?!\n)", description="128 random bits, lower-case hex")]
Name = Annotated[
    str,
    msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$(?!\n)", description="an identifier that is also a safe file name"),
]
Text = Annotated[
    str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$(?!\n)", max_length=4000, description="one line, no control characters")
]
Timestamp = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|\+00:00)$(?!\n)", description="UTC, RFC 3339"
    ),
]
Date = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)", description="UTC")]
# Signed payloads hold no floats: their text differs between signers. Fractions travel as plain decimals, never with an exponent.
Decimal = Annotated[
    str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,30})(\.[0-9]{1,60})?$(?!\n)", description="a non-negative decimal number")
]
# How far apart two float32 values are; "infinite" where one of them is not finite.
Difference = Annotated[str, msgspec.Meta(pattern=r"^((0|[1-9][0-9]{0,60})(\.[0-9]{1,160})?|infinite)$(?!\n)")]
# RFC 8785 numbers are exact up to 2**53 - 1.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
Microseconds = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1, description="of a monotonic clock")]

EvidenceClass = Literal["fixture", "real-model", "real-hardware", "release"]
Verdict = Literal["passed", "failed"]
Outputs = Literal["all", "last"]


def one_line(text: str, limit: int = 2000) -> str:
    """Any text as a :data:`Text`: what does not print is escaped, what is too long is cut."""
    shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return (shown if len(shown) <= limit else f"{shown[: limit - 1]}…") or "(nothing)"
