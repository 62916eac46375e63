"""``dgrctl patch lint``: what a reviewer would ask of the stack, asked by a machine. Needs the files of this repository only.

Every rule is applied to every patch, so that one run tells all that is wrong:

* ``series``: numbers 1, 2, 3, …; lock and files name each other, and belong to the pin.
* ``form``: the exact form of an exported patch, under the name that its subject gives it.
* ``header``: why it exists, ``Drop-when:``, ``Owns:``.
* ``ownership``: every changed file is owned, and every ``Owns:`` pattern matches a changed file.
* ``noise``: no trailing white space, no carriage returns, no change of white space alone, no conflict markers.
* ``budget``: lines changed in upstream's core, and in each architecture.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dgrctl.errors import DgrError, PatchError
from dgrctl.layout import Layout
from dgrctl.upstream.header import DROP_WHEN, OWNS, read_header
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.patchfile import MAX_PATCH_BYTES, Hunk, Patch, file_name, parse_patch
from dgrctl.upstream.series import LOCK_NAME, Lines, count_lines, patch_names, read_series

_CONFLICT_MARKER = re.compile(rb"(<{7}|\|{7}|={7}|>{7})( |$)")
_CHANGED = (b"+", b"-")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ``where`` is a file of the patch folder, with the upstream file behind it if it is in one."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: {self.what}"


@dataclass(frozen=True)
class LintReport:
    """What lint found, and the stack's size as its patches have it."""

    patches: tuple[str, ...]
    lines: Lines
    findings: tuple[Finding, ...]


def lint(layout: Layout) -> LintReport:
    """Looks at manifest, lock and every patch.

    Raises:
        InputError: the manifest is missing or malformed.
    """
    manifest = load_manifest(layout)
    findings: list[Finding] = []
    try:
        read_series(layout, manifest)
    except DgrError as error:
        findings.append(Finding("series", str(error.where), error.what))
    names = patch_names(layout)
    patches: list[Patch] = []
    for number, name in enumerate(names, start=1):
        try:
            patch = _read(layout, name)
        except PatchError as error:
            findings.append(Finding("form", name, error.what))
            continue
        patches.append(patch)
        findings += _in_patch(number, name, patch)
    lines = count_lines(patches)
    findings += [Finding("budget", LOCK_NAME, f"too many changed lines: {over}") for over in lines.over_budget()]
    return LintReport(tuple(names), lines, tuple(findings))


def _read(layout: Layout, name: str) -> Patch:
    path = layout.patches / name
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_PATCH_BYTES:
            raise PatchError(f"this is not a regular file of at most {MAX_PATCH_BYTES} bytes", where=str(path))
        return parse_patch(path.read_bytes(), name)
    except OSError as error:
        raise PatchError(f"this patch cannot be read: {error.strerror}", where=str(path)) from error


def _in_patch(number: int, name: str, patch: Patch) -> Iterator[Finding]:
    if name != file_name(number, patch.message):
        yield Finding("form", name, f"patch {number} of this subject is called {file_name(number, patch.message)}")
    yield from _in_header(name, patch)
    for path, group in itertools.groupby(patch.hunks(), key=lambda hunk: hunk.path):
        for what in dict.fromkeys(_noise(list(group))):
            yield Finding("noise", f"{name}: {path}", what)


def _in_header(name: str, patch: Patch) -> Iterator[Finding]:
    header = read_header(patch.message)
    if not header.why:
        yield Finding("header", name, "it does not say why it exists, between subject and trailers")
    if len(header.drop_when) != 1:
        yield Finding("header", name, f"it must have one line '{DROP_WHEN}: …', saying what would let us drop it")
    if not header.owns:
        yield Finding("header", name, f"it has no line '{OWNS}: …' with the files that it changes")
        return
    paths = [change.path for change in patch.changes()]
    for path in header.disowned(paths):
        yield Finding("ownership", name, f"it changes {path}, which it does not own")
    for pattern in header.idle(paths):
        yield Finding("ownership", name, f"it owns {pattern}, which matches none of the files that it changes")


def _noise(hunks: list[Hunk]) -> Iterator[str]:
    """What is noise in the hunks of one file. A file whose own lines end in carriage returns keeps them."""
    own = [line for hunk in hunks for line in hunk.lines if line[:1] in (b" ", b"-")]
    dos = bool(own) and all(line.endswith(b"\r") for line in own)
    for hunk in hunks:
        for changed, block in itertools.groupby(hunk.lines, key=lambda line: line[:1] in _CHANGED):
            if changed:
                yield from _noise_of_block(list(block), dos=dos)


def _noise_of_block(block: list[bytes], *, dos: bool) -> Iterator[str]:
    """``block``: lines added and removed at one place."""
    added = [line[1:] for line in block if line.startswith(b"+")]
    removed = [line[1:] for line in block if line.startswith(b"-")]
    for line in added:
        text = line.removesuffix(b"\r") if dos else line
        if text.endswith(b"\r"):
            yield "an added line ends in a carriage return"
        elif text != text.rstrip():
            yield "an added line ends in white space"
        if _CONFLICT_MARKER.match(text):
            yield "an added line is a conflict marker"
    if b"".join(b"".join(added).split()) == b"".join(b"".join(removed).split()):
        yield "a change of white space alone"
