"""What a user asks: a prompt and how many tokens, checked before anything starts."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dgr.v1 import common_pb2

from dgrctl.errors import InputError

# Far above any context; reading more would only serve to fill memory.
MAX_PROMPT_BYTES = 4 * 1024 * 1024
MAX_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class Question:
    """One request to a route."""

    prompt: common_pb2.Prompt
    max_tokens: int


def ask(text: str | None, file: str | None, *, max_tokens: int, raw: bool) -> Question:
    """Makes the request.

    Args:
        text: The prompt itself; or
        file: where it stands: a path, or "-" for standard input.
        raw: Tokenize the prompt as it stands, without the model's chat template.

    Raises:
        InputError: empty, too long, not UTF-8 or unreadable; or less than one token asked for.
    """
    if not 1 <= max_tokens <= MAX_TOKENS:
        raise InputError(f"--max-tokens is {max_tokens}", where="--max-tokens", remedy=f"ask for 1 to {MAX_TOKENS} tokens")
    if file is not None:
        where, words = _source(file), _read(file)
    else:
        where, words = "--prompt", _encoded(text or "")
    if not words:
        raise InputError("the prompt is empty", where=where, remedy="give at least one character")
    if len(words) > MAX_PROMPT_BYTES:
        raise InputError(f"the prompt is longer than {MAX_PROMPT_BYTES} bytes", where=where, remedy="shorten it")
    try:
        prompt = common_pb2.Prompt(text=words.decode("utf-8"), chat_template=not raw)
    except UnicodeDecodeError as error:
        raise InputError(f"the prompt is not UTF-8: {error}", where=where, remedy="save it as UTF-8") from error
    return Question(prompt, max_tokens)


def _encoded(text: str) -> bytes:
    """The bytes of the command line, whatever locale Python read them in. What no UTF-8 holds becomes bytes that are none."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _source(file: str) -> str:
    return "standard input" if file == "-" else file


def _read(file: str) -> bytes:
    try:
        if file == "-":
            return _bounded(sys.stdin.buffer)
        with Path(file).open("rb") as stream:
            return _bounded(stream)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"the prompt cannot be read: {reason}", where=_source(file), remedy="name a readable file, or -"
        ) from error


def _bounded(stream: BinaryIO) -> bytes:
    return stream.read(MAX_PROMPT_BYTES + 1)
