"""The pin: which llama.cpp, proven how, to be had where (``manifests/upstream/llama.cpp.toml``)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dgrctl.documents import load_toml
from dgrctl.errors import InputError
from dgrctl.layout import Layout

ObjectId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
"""A git object id, SHA-1, lower-case hex."""

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""A SHA-256, lower-case hex."""


class GitTransport(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="kind", tag="git"):
    """A git server that gives out single commits by id. ``file://`` serves mirrors and tests."""

    url: Annotated[str, msgspec.Meta(pattern=r"^(https|file)://[^\s]+\Z")]


class SdistTransport(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="kind", tag="sdist"):
    """A Python source package that carries a git directory, at ``git_dir`` below its top folder."""

    package: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
    version: Annotated[str, msgspec.Meta(pattern=r"^[0-9][0-9A-Za-z.+!]*\Z")]
    sha256: Sha256
    bytes: Annotated[int, msgspec.Meta(ge=1)]
    git_dir: Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$))[^\\]+[^/\\]\Z")]

    @property
    def filename(self) -> str:
        """The package's file, by the naming rule of source distributions."""
        return f"{self.package.replace('-', '_').replace('.', '_').lower()}-{self.version}.tar.gz"


Transport = GitTransport | SdistTransport


class UpstreamManifest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The pin.

    Attributes:
        commit: The exact commit, and ``tree`` the tree that it names.
        version: Upstream's own version there, for people.
        transports: Where to get it, in the order tried. Any kind stands at most once: ``--transport`` names it.
    """

    schema: Literal[1]
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]*\Z")]
    version: Annotated[str, msgspec.Meta(min_length=1)]
    commit: ObjectId
    tree: ObjectId
    transports: Annotated[tuple[Transport, ...], msgspec.Meta(min_length=1)]


def transport_name(transport: Transport) -> str:
    """What ``--transport`` calls it: its kind."""
    return str(transport.__struct_config__.tag)


def load_manifest(layout: Layout) -> UpstreamManifest:
    """The checkout's pin.

    Raises:
        InputError: missing or malformed; names the file and field.
    """
    manifest = load_toml(layout.upstream_manifest, UpstreamManifest, what="upstream manifest")
    names = [transport_name(transport) for transport in manifest.transports]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"the transport '{name}' stands there twice",
                where=f"{layout.upstream_manifest}: transports",
                remedy="keep one transport of each kind",
            )
    return manifest
