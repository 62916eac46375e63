"""One patch file of the stack: its exact form, read strictly and written deterministically.

The form is that of ``git format-patch --zero-commit --full-index --no-signature --no-stat`` with a fixed author and date, so
``git am --keep-non-patch`` takes it too (without that option, it drops a ``[tag]`` from the subject)::

    From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
    From: DGR patch stack <patches@dgr.invalid>
    Date: Thu, 1 Jan 2026 00:00:00 +0000
    Subject: [PATCH] <subject, on one line>

    <message>
    ---

    diff --git a/<path> b/<path>
    …

A file that would not be written exactly so is refused; thus nothing can hide between the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dgrctl.errors import PatchError

AUTHOR_NAME = "DGR patch stack"
AUTHOR_EMAIL = "patches@dgr.invalid"
# Author's and committer's date of every commit, so that its id depends on nothing but parent, tree and message.
COMMIT_DATE = "2026-01-01T00:00:00+00:00"

MAX_PATCH_BYTES = 4 * 1024 * 1024
NAME_PATTERN = re.compile(r"([0-9]{4})-[A-Za-z0-9._-]{1,60}\.patch")

_HEAD = (
    "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
    f"From: {AUTHOR_NAME} <{AUTHOR_EMAIL}>\n"
    "Date: Thu, 1 Jan 2026 00:00:00 +0000\n"
    "Subject: [PATCH] "
)
_SEPARATOR = "\n---\n\n"
# What git am takes for the end of the message (git-mailinfo).
_ENDS_MESSAGE = re.compile(r"^(---(\s|$)|diff -|Index: )", re.MULTILINE)
_FILE_HEADER = re.compile(rb"^diff --git a/(.+) b/(.+)$")
_INDEX_LINE = re.compile(rb"^index ([0-9a-f]{40})\.\.([0-9a-f]{40})(?: [0-7]{6})?$")
_HUNK_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class FileChange:
    """What a patch does to one file: lines added and removed, and the file's blob ids before and after (zeros: no file)."""

    path: str
    blobs: tuple[str, str]
    added: int
    removed: int


@dataclass(frozen=True)
class Hunk:
    """One place that a patch changes in the file ``path``.

    Attributes:
        old, new: The number of its first line before and after.
        lines: As the diff has them, each with its " ", "-", "+" or "\\" in front, without line feeds.
    """

    path: str
    old: int
    new: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True)
class Patch:
    """A patch's message (subject line, empty line, text; ends in a newline) and diff."""

    message: str
    diff: bytes

    def render(self) -> bytes:
        """The file's exact bytes.

        Raises:
            PatchError: the message or diff cannot stand in a patch file.
        """
        subject, _, text = self.message.partition("\n")
        if not subject.strip() or "\r" in self.message or "\0" in self.message:
            raise PatchError("the commit message has no subject, or holds control characters", where=subject or "(no subject)")
        if found := _ENDS_MESSAGE.search(text):
            raise PatchError(
                f"a line of the commit message begins with '{found.group().strip()}', which would end it in a patch file",
                where=subject,
                remedy="word that line differently: git commit --amend in the workspace",
            )
        if not self.diff.startswith(b"diff --git "):
            raise PatchError(
                "the commit changes nothing", where=subject, remedy="drop it: git rebase -i upstream in the workspace"
            )
        return (_HEAD + subject + "\n" + text.rstrip("\n") + _SEPARATOR).encode() + self.diff

    def changes(self) -> tuple[FileChange, ...]:
        """Added and removed lines by file, in the order of the diff.

        Raises:
            PatchError: the diff is binary, truncated or malformed.
        """
        return tuple(change for change, _hunks in _read_diff(self.diff))

    def hunks(self) -> tuple[Hunk, ...]:
        """The places that it changes, in the order of the diff. Raises as :meth:`changes`."""
        return tuple(hunk for _change, hunks in _read_diff(self.diff) for hunk in hunks)


def parse_patch(data: bytes, name: str) -> Patch:
    """Reads a patch file; ``name`` is for messages.

    Raises:
        PatchError: not in the exact form above, or its diff is truncated.
    """
    remedy = f"to restore it: git checkout -- {name}; to change it, commit in the workspace and run dgrctl patch export"
    try:
        head, _, diff = data.partition(_SEPARATOR.encode())
        text = head.decode("utf-8")
        if not text.startswith(_HEAD):
            raise PatchError("it does not begin as an exported patch does", where=name, remedy=remedy)
        patch = Patch(normalize_message(text.removeprefix(_HEAD)), diff)
        if patch.render() != data:
            raise PatchError("it is not in the exact form of an exported patch", where=name, remedy=remedy)
        patch.changes()
    except UnicodeDecodeError as error:
        raise PatchError("its message is not UTF-8", where=name, remedy=remedy) from error
    except PatchError as error:
        raise PatchError(error.what, where=name, remedy=remedy) from error
    return patch


def normalize_message(message: str) -> str:
    """A commit message in its one form: subject on a single line, no trailing white space, one newline at the end."""
    lines = [line.rstrip() for line in message.strip().splitlines()]
    blank = lines.index("") if "" in lines else len(lines)
    subject = " ".join(line.strip() for line in lines[:blank])
    text = "\n".join(lines[blank:]).strip("\n")
    return f"{subject}\n\n{text}\n" if text else f"{subject}\n"


def file_name(number: int, message: str) -> str:
    """``0001-Keep-only-the-owned-layers.patch``: git's own rule for naming patches."""
    subject = message.partition("\n")[0]
    slug = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._]+", "-", subject)).strip("-.")[:52].strip("-.")
    return f"{number:04d}-{slug or 'patch'}.patch"


def _read_diff(diff: bytes) -> Iterator[tuple[FileChange, tuple[Hunk, ...]]]:
    """Walks the diff by the line counts of its hunk headers, so that no content can pass for a header."""
    lines = diff.split(b"\n")
    if lines.pop() != b"":
        raise PatchError("it is truncated: its last line does not end")
    at = 0
    while at < len(lines):
        header = _FILE_HEADER.match(lines[at])
        if header is None or header.group(1) != header.group(2):
            raise PatchError("a file's part of it does not begin with 'diff --git a/PATH b/PATH'")
        path = header.group(1).decode("utf-8", "backslashreplace")
        at, blobs = _file_head(lines, at + 1, path)
        hunks = []
        while at < len(lines) and (found := _HUNK_HEADER.match(lines[at])):
            old, old_count, new, new_count = (int(number) if number else 1 for number in found.groups())
            end = _hunk_end(lines, at + 1, old_count, new_count)
            hunks.append(Hunk(path, old, new, tuple(lines[at + 1 : end])))
            at = end
        kinds = [line[:1] for hunk in hunks for line in hunk.lines]
        yield FileChange(path, blobs, kinds.count(b"+"), kinds.count(b"-")), tuple(hunks)


def _file_head(lines: list[bytes], at: int, path: str) -> tuple[int, tuple[str, str]]:
    """Reads the lines between a file's first one and its hunks; returns the line after them, and the blob ids."""
    blobs = None
    while at < len(lines) and not lines[at].startswith((b"@@ ", b"diff --git ")):
        if index := _INDEX_LINE.match(lines[at]):
            blobs = (index.group(1).decode(), index.group(2).decode())
        elif lines[at].startswith((b"Binary files ", b"GIT binary patch")):
            raise PatchError(f"it changes {path} as a binary file")
        at += 1
    if blobs is None:
        raise PatchError(f"it changes only the mode of {path}, or does not name that file's content before and after")
    return at, blobs


def _hunk_end(lines: list[bytes], at: int, old: int, new: int) -> int:
    """The line after a hunk that begins at ``at`` and has ``old`` lines before and ``new`` ones after."""
    while old > 0 or new > 0:
        kind = lines[at][:1] if at < len(lines) else b""
        if kind not in (b" ", b"+", b"-", b"\\"):
            raise PatchError("it is truncated: a hunk ends before the lines that its header names")
        old -= kind in (b" ", b"-")
        new -= kind in (b" ", b"+")
        at += 1
    return at + 1 if at < len(lines) and lines[at].startswith(b"\\") else at
