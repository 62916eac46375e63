"""Reading canonical JSON: only the one spelling that :func:`dgrctl.canonical.canonical_json` writes is accepted."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from dgrctl.canonical import canonical_json
from dgrctl.errors import EvidenceError, InputError

T = TypeVar("T")

# Evidence of ours is some tens of kilobytes; more would only serve to fill memory.
MAX_BYTES = 16 * 1024 * 1024

_REMEDY = "these are not the bytes that were written; restore the file, or make it anew"


def parse_canonical(data: bytes, kind: type[T], *, what: str, where: str) -> T:
    """Reads ``data`` into the msgspec struct ``kind``, only if it is exactly the canonical bytes of that document.

    Raises:
        EvidenceError: too large, not JSON, a duplicate, unknown or missing member, a float, a wrong type, or another spelling of
            the same document.
    """
    if len(data) > MAX_BYTES:
        raise EvidenceError(f"the {what} is {len(data)} bytes long; at most {MAX_BYTES} are read", where=where, remedy=_REMEDY)
    try:
        document = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_float=_refuse_number, parse_constant=_refuse_number
        )
        same = canonical_json(document) == data
    except (ValueError, RecursionError, InputError) as error:
        raise EvidenceError(f"the {what} is not the JSON it must be: {error}", where=where, remedy=_REMEDY) from error
    if not same:
        raise EvidenceError(
            f"the {what} is not in canonical form (RFC 8785): the same content spelled otherwise", where=where, remedy=_REMEDY
        )
    return convert(document, kind, what=what, where=where)


def convert(document: object, kind: type[T], *, what: str, where: str) -> T:
    """A parsed document as the struct ``kind``.

    Raises:
        EvidenceError: an unknown or missing member, or a wrong type or value; the message names it.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise EvidenceError(f"the {what} does not hold what it must: {error}", where=where, remedy=_REMEDY) from error


def refusal(what: str, where: str) -> EvidenceError:
    """The error of a document whose content cannot be what was written."""
    return EvidenceError(what, where=where, remedy=_REMEDY)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the member {name!r} stands twice")
        members[name] = value
    return members


def _refuse_number(text: str) -> object:
    raise ValueError(f"{text} is not an integer")
