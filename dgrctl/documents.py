"""Reading the project's own file formats: strict types, no unknown or duplicate field, every refusal with file, field and remedy.

TOML is for files that people write, JSON for files that dgrctl writes.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from dgrctl.errors import InputError
from dgrctl.files import NotARegularFileError, read_regular

T = TypeVar("T")

# The largest document of ours is far below this; reading more would only serve to fill memory.
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024


def load_toml(path: Path, kind: type[T], *, what: str) -> T:
    """Reads ``path`` as TOML into the msgspec struct ``kind``.

    Args:
        what: What the file is, for messages: "recipe", "lock", …

    Raises:
        InputError: missing, too large, not UTF-8, not TOML, a duplicate, unknown or missing field, or a wrong type.
    """
    return digested_toml(path, kind, what=what)[0]


def digested_toml(path: Path, kind: type[T], *, what: str) -> tuple[T, str]:
    """Like :func:`load_toml`, with the SHA-256 of the very bytes that were parsed."""
    data = _read(path, what)
    text = _text(data, path, what)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _toml_refusal(error, text, path, what) from error
    except (ValueError, RecursionError) as error:
        # Integers of thousands of digits and arrays nested a thousand deep.
        raise InputError(f"this {what} cannot be read: {error}", where=str(path), remedy="correct that value") from error
    return _convert(document, kind, path, what), hashlib.sha256(data).hexdigest()


def load_json(path: Path, kind: type[T], *, what: str) -> T:
    """Reads ``path`` as JSON into the msgspec struct ``kind``; like :func:`load_toml`."""
    return digested_json(path, kind, what=what)[0]


def digested_json(path: Path, kind: type[T], *, what: str) -> tuple[T, str]:
    """Like :func:`load_json`, with the SHA-256 of the very bytes that were parsed."""
    data = _read(path, what)
    text = _text(data, path, what)

    def refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members: dict[str, object] = {}
        for name, value in pairs:
            if name in members:
                raise InputError(f"this {what} holds the field twice", where=f"{path}: {name}", remedy="remove one of the two")
            members[name] = value
        return members

    try:
        document = json.loads(text, object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"this {what} is not valid JSON: {error}", where=str(path), remedy="restore it, or make it anew with dgrctl"
        ) from error
    return _convert(document, kind, path, what), hashlib.sha256(data).hexdigest()


def _read(path: Path, what: str) -> bytes:
    try:
        data = read_regular(path, MAX_DOCUMENT_BYTES + 1)
        size = len(data) if len(data) <= MAX_DOCUMENT_BYTES else path.stat().st_size
    except FileNotFoundError as error:
        raise InputError(
            f"no such {what}", where=str(path), remedy="check the name; git status shows what was removed"
        ) from error
    except NotARegularFileError as error:
        raise InputError(f"this {what} is not a regular file", where=str(path), remedy="name a file") from error
    except OSError as error:
        raise InputError(
            f"this {what} cannot be read: {error.strerror}", where=str(path), remedy="make it readable for this user"
        ) from error
    if size > MAX_DOCUMENT_BYTES:
        raise InputError(
            f"this {what} is {size} bytes long; at most {MAX_DOCUMENT_BYTES} are read",
            where=str(path),
            remedy="check that this is the file you meant",
        )
    return data


def _text(data: bytes, path: Path, what: str) -> str:
    try:
        # As text files are read: every kind of line end is one line feed.
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"this {what} is not UTF-8: {error}", where=str(path), remedy="save it as UTF-8") from error


def _toml_refusal(error: tomllib.TOMLDecodeError, text: str, path: Path, what: str) -> InputError:
    """What is wrong, with the line it stands on; a field given twice by its name."""
    message = str(error)
    lines = text.rstrip().splitlines() or [""]
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    number = int(found.group(1)) if found and found.group(1) else len(lines)
    line = lines[min(number, len(lines)) - 1].strip()
    if message.startswith("Cannot overwrite a value") and "=" in line:
        field = line.partition("=")[0].strip()
        return InputError(
            f"this {what} holds the field twice", where=f"{path}:{number}: {field}", detail=line, remedy="remove one of the two"
        )
    return InputError(
        f"this {what} is not valid TOML: {message}", where=f"{path}:{number}", detail=line, remedy="correct that line"
    )


def _convert(document: object, kind: type[T], path: Path, what: str) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        found = re.search(r" - at `(.*)`$", message)
        field = found.group(1).removeprefix("$").removeprefix(".") if found else ""
        if found:
            message = message[: found.start()]
        named = re.search(r"(?:missing required|contains unknown) field `(.*)`$", message)
        if named:
            field = f"{field}.{named.group(1)}" if field else named.group(1)
        raise InputError(
            f"this {what} does not hold what it must: {message}",
            where=f"{path}: {field}" if field else str(path),
            remedy="correct that field" if field else "correct the file",
        ) from error
