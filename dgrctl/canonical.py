"""RFC 8785 canonical JSON: one document, one sequence of bytes, and therefore one digest."""

from __future__ import annotations

import hashlib

import rfc8785

from dgrctl.errors import InputError


def canonical_json(document: object) -> bytes:
    """The canonical bytes of a JSON document.

    Floats are refused: two writers may print the same number differently, and then their digests differ. Use integers or
    decimal strings.

    Raises:
        InputError: a float, an integer beyond 2^53 - 1, a string that is not Unicode, or a type that JSON lacks.
    """
    _refuse_floats(document, "$")
    try:
        return rfc8785.dumps(document)  # type: ignore[arg-type]  # what it cannot take, it refuses itself
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InputError(
            f"this document has no canonical form: {error}", remedy="use integers, strings, lists and objects"
        ) from error


def canonical_sha256(document: object) -> str:
    """SHA-256 over :func:`canonical_json`, as lower-case hex."""
    return hashlib.sha256(canonical_json(document)).hexdigest()


def _refuse_floats(value: object, where: str) -> None:
    if isinstance(value, float):
        raise InputError(f"a float ({value}) in a canonical document", where=where, remedy="write an integer or a decimal string")
    if isinstance(value, dict):
        for name, member in value.items():
            _refuse_floats(member, f"{where}.{name}")
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            _refuse_floats(member, f"{where}[{index}]")
