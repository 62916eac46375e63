"""The one line a served program writes on stdout: that it is ready, or why it is not.

Format: a JSON object, ``{"event": "ready", "address": "127.0.0.1:41234", "pid": 123}`` or ``{"event": "error", "code":
"FAILED_PRECONDITION", "message": "…", "remedy": "…"}``, ended by a newline. ``code`` is the name of a google.rpc.Code.
"""

from __future__ import annotations

import msgspec

MAX_LINE_BYTES = 64 * 1024


class Ready(msgspec.Struct, tag_field="event", tag="ready", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The model is loaded and the port is bound."""

    address: str
    pid: int


class Refused(msgspec.Struct, tag_field="event", tag="error", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The program will not serve, and exits."""

    code: str
    message: str
    remedy: str | None = None


def parse_line(line: bytes) -> Ready | Refused:
    """Reads the line, without its newline.

    Raises:
        ValueError: it is not such a line; the text says why and shows its beginning.
    """
    try:
        return msgspec.json.decode(line, type=Ready | Refused)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = line[:80].decode("utf-8", "backslashreplace")
        raise ValueError(f"its first line on stdout is no ready line ({error}): {shown!r}") from error
