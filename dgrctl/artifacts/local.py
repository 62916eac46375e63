"""A model on this machine, and what is known of its parts on disk."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.artifacts.inventory import Inventory, stage_bytes, take_inventory
from dgrctl.artifacts.manifest import FIXTURE_MANIFEST, ModelManifest, Part, manifest_path
from dgrctl.artifacts.storage import refuse_home
from dgrctl.console import progress
from dgrctl.errors import InputError
from dgrctl.files import sha256_file, storage_errors
from dgrctl.layout import Layout


@dataclass(frozen=True)
class LocalModel:
    """A complete set, every part of it hashed, and its contents in the terms of a route. Sizes are bytes of tensor data."""

    manifest: ModelManifest
    parts: tuple[Path, ...]  # in loading order
    set_digest: str  # SHA-256 hex, what --model-digest takes
    architecture: str
    context_length: int  # positions the model was made for
    layer_bytes: tuple[int, ...]
    head_bytes: int  # token embedding
    tail_bytes: int  # output norm and head, the embedding again if it is tied
    tied_bytes: int = 0  # counted in head_bytes and in tail_bytes, held once by a stage that is both
    shared_bytes: int = 0  # held by every stage
    generator: str | None = None  # what made a fixture, as its files say; None for a real model

    @property
    def first_part(self) -> Path:
        """What ``--model`` takes."""
        return self.parts[0]

    @property
    def layer_count(self) -> int:
        return len(self.layer_bytes)

    def stage_bytes(self, begin: int, end: int) -> int:
        """Bytes of the tensors that a stage owning the layers [begin, end) holds."""
        return stage_bytes(self, begin, end)


class State(enum.Enum):
    """What a look at a part found."""

    GOOD = "good"
    MISSING = "missing"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """One part as it lies on disk; ``what`` says in which way it is bad."""

    part: Part
    path: Path
    state: State
    what: str = ""


def presence(folder: Path, manifest: ModelManifest) -> list[Finding]:
    """Looks at every part of ``manifest`` in ``folder`` by size alone: enough to say what is missing, not that it is right.

    Raises:
        StorageError: a part cannot be looked at, or leads to /home.
    """
    return [_look(folder / part.name, part) for part in manifest.parts]


def survey(folder: Path, manifest: ModelManifest) -> list[Finding]:
    """Like :func:`presence`, and hashes every part that is there with the right size. Only this finds parts good."""
    looked = presence(folder, manifest)
    total = sum(finding.part.size for finding in looked if finding.state is State.GOOD)
    if not total:
        return looked
    done = 0
    with progress(f"Hashing {manifest.id}", total=total, unit="bytes") as update:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            update(done, None)

        return [_hash(finding, advance) if finding.state is State.GOOD else finding for finding in looked]


def _look(path: Path, part: Part) -> Finding:
    refuse_home(path, "model part")
    with storage_errors(path):
        if not path.exists() and not path.is_symlink():
            return Finding(part, path, State.MISSING)
        if not path.is_file():
            return Finding(part, path, State.BAD, "it is not a regular file")
        size = path.stat().st_size
    if size != part.size:
        return Finding(part, path, State.BAD, f"it has {size} bytes instead of {part.size}")
    return Finding(part, path, State.GOOD)


def _hash(finding: Finding, advance: Callable[[int], None]) -> Finding:
    part, path = finding.part, finding.path
    try:
        with storage_errors(path):
            sha256 = sha256_file(path, advance)
    except FileNotFoundError:
        return Finding(part, path, State.MISSING)
    if sha256 != part.sha256:
        return Finding(part, path, State.BAD, f"its SHA-256 is {sha256} instead of {part.sha256}")
    return finding


def open_set(layout: Layout, manifest: ModelManifest, folder: Path) -> LocalModel:
    """Reads the headers of a set whose parts have been found good, and holds the manifest's claims against them.

    Raises:
        InputError: a part is not GGUF, the parts are no set, or the manifest says something else than they do.
    """
    parts = tuple(folder / part.name for part in manifest.parts)
    inventory = take_inventory([read_header(path) for path in parts])
    described = folder / FIXTURE_MANIFEST if manifest.synthesis is not None else manifest_path(layout, manifest.id)
    _check_claims(described, manifest, inventory)
    return LocalModel(
        manifest=manifest,
        parts=parts,
        set_digest=manifest.set_digest,
        architecture=inventory.architecture,
        context_length=inventory.context_length,
        layer_bytes=inventory.layer_bytes,
        head_bytes=inventory.head_bytes,
        tail_bytes=inventory.tail_bytes,
        tied_bytes=inventory.tied_bytes,
        shared_bytes=inventory.shared_bytes,
        generator=inventory.generator,
    )


def _check_claims(described: Path, manifest: ModelManifest, inventory: Inventory) -> None:
    claims: tuple[tuple[str, object, object], ...] = (
        ("architecture", manifest.architecture, inventory.architecture),
        ("layer_count", manifest.layer_count, len(inventory.layer_bytes)),
        ("quantisation", manifest.quantisation, inventory.quantisation),
        ("tokenizer_sha256", manifest.tokenizer_sha256, inventory.tokenizer_sha256),
        ("synthesis.generator", manifest.synthesis.generator if manifest.synthesis else None, inventory.generator),
    )
    for field, claimed, found in claims:
        if claimed != found:
            raise InputError(
                f"this model manifest says {claimed!r}, and the model's own header {found!r}",
                where=f"{described}: {field}",
                remedy="correct the manifest",
            )
