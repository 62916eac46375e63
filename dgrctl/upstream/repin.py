"""The upstream manifest moved to another pin: the lines that name it change, what people wrote around them stays."""

from __future__ import annotations

import contextlib
import re

import msgspec

from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.upstream.manifest import SdistTransport, UpstreamManifest, load_manifest
from dgrctl.upstream.target import Target

# A table of transports, with the comment right above it, up to the next one.
_TABLE = re.compile(
    r"(?:^#[^\n]*\n)*^\[\[transports\]\][^\n]*\n(?:(?!^\[\[)(?!^#[^\n]*\n(?:#[^\n]*\n)*\[\[)[^\n]*\n)*", re.MULTILINE
)
_SDIST = re.compile(r"""^kind\s*=\s*["']sdist["']""", re.MULTILINE)


def repinned_manifest(manifest: UpstreamManifest, target: Target) -> UpstreamManifest:
    """The manifest for another pin. A source package holds one commit: the one that brought the target takes its place, or none.

    Raises:
        InputError: no transport would be left.
    """
    if target.commit == manifest.commit:
        return manifest
    packages = (target.package,) if target.package is not None else ()
    transports = (*(each for each in manifest.transports if not isinstance(each, SdistTransport)), *packages)
    if not transports:
        raise InputError(
            "the manifest's only transport is a source package of the former pin, so nothing could bring the new one",
            where="transports",
            remedy="add a git transport to the manifest, or bump from the package's new version: --from FILE.tar.gz",
        )
    return msgspec.structs.replace(
        manifest, version=target.version, commit=target.commit, tree=target.tree, transports=transports
    )


def repinned_text(text: str, former: UpstreamManifest, wanted: UpstreamManifest) -> str:
    """The manifest's file with the fields of ``wanted``; the caller checks by reading it that nothing else changed."""
    if former == wanted:
        return text
    begin = text.index("[[transports]]")
    head = text[:begin]
    for name in ("version", "commit", "tree"):
        head = _set(head, name, getattr(wanted, name))
    package = next((each for each in wanted.transports if isinstance(each, SdistTransport)), None)

    def table(found: re.Match[str]) -> str:
        if not _SDIST.search(found.group()):
            return found.group()
        if package is None:
            return ""
        changed = _set(_set(found.group(), "version", package.version), "sha256", package.sha256)
        return re.sub(r"^(bytes\s*=\s*)[0-9_]+", rf"\g<1>{package.bytes}", changed, flags=re.MULTILINE)

    return f"{_TABLE.sub(table, head + text[begin:]).rstrip()}\n"


def require_repinned(layout: Layout, wanted: UpstreamManifest) -> None:
    """Checks that the manifest of ``layout`` says what it was to say.

    Raises:
        InputError: it does not; it is written in a way that cannot be edited.
    """
    found = None
    with contextlib.suppress(InputError):
        found = load_manifest(layout)
    if found != wanted:
        raise InputError(
            "the manifest is written in a way that dgrctl cannot move to another pin",
            where=str(layout.upstream_manifest),
            remedy='write each field on a line of its own, as name = "value", or move the pin by hand',
        )


def _set(text: str, name: str, value: str) -> str:
    return re.sub(rf"""^({name}\s*=\s*)(["'])[^"'\n]*\2""", rf'\g<1>"{value}"', text, count=1, flags=re.MULTILINE)
