"""Bringing a model to this machine, and proving that it is the one its manifest names.

A part has its name only once all its bytes have been hashed and are durable, so a kill at any point leaves parts that are whole
and leftovers with names of their own. Being there is never taken for being right: every pull and every use hashes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts import wheel
from dgrctl.artifacts.local import Finding, LocalModel, State, open_set, presence, survey
from dgrctl.artifacts.manifest import (
    FIXTURE_MANIFEST,
    ID_PATTERN,
    ModelManifest,
    Part,
    Source,
    load_fixture_manifest,
    load_model_manifest,
    model_ids,
)
from dgrctl.artifacts.pieces import Pieced
from dgrctl.artifacts.storage import model_folder, require_space, storage_root
from dgrctl.artifacts.target import refuse_target
from dgrctl.errors import FetchError, InputError, IntegrityError, StorageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.statelock import file_lock

Storage = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Provisioned:
    """A pulled model, and the names of the parts that this pull had to bring (none: there was nothing to do)."""

    model: LocalModel
    brought: tuple[str, ...]


@dataclass(frozen=True)
class ModelStatus:
    """A model of the manifests as ``model list`` shows it. ``state``: "absent", "incomplete" or "present" (not hashed)."""

    manifest: ModelManifest
    state: str
    folder: Path


def pull(layout: Layout, model_id: str, storage: Storage = None) -> LocalModel:
    """The model, brought if it is not there, hashed in any case; see :func:`provision`."""
    return provision(layout, model_id, storage).model


def provision(layout: Layout, model_id: str, storage: Storage = None, *, repair: bool = False) -> Provisioned:
    """Brings what is missing of a model, one process at a time per storage folder and model.

    Args:
        repair: Bring again the parts whose bytes are wrong, too. Without it they are reported and left as evidence.

    Raises:
        InputError: unknown model, or its manifest is malformed or contradicts the model.
        StorageError: storage refused, too small, full or forbidden; what is complete is kept.
        IntegrityError: a part's bytes are wrong (and ``repair`` is off), or the source's are.
        FetchError: the source cannot be reached.
    """
    manifest = known_manifest(layout, model_id, storage)
    if manifest.synthesis is not None:
        raise InputError(
            f"the model {model_id} is a fixture: it is made, not pulled",
            where=model_id,
            remedy=f"dgrctl model verify {model_id}, or make it anew with dgrctl model synth",
        )
    folder = model_folder(storage_root(layout, storage), model_id)
    if _is_whole(folder, manifest):
        findings = survey(folder, manifest)
        if all(finding.state is State.GOOD for finding in findings):
            # No lock and no write: the folder may be another user's.
            return Provisioned(open_set(layout, manifest, folder), ())
    root = storage_root(layout, storage, create=True)
    folder = model_folder(root, model_id)
    with file_lock(root / ".locks" / f"{model_id}.lock", f"model {model_id} in {root}"):
        _make_folder(folder)
        findings = survey(folder, manifest)
        if not repair:
            _refuse_bad(findings, _command(model_id, storage, "--repair"))
        wanted = [finding.part for finding in findings if finding.state is not State.GOOD]
        _bring(manifest, wanted, folder)
        return Provisioned(open_set(layout, manifest, folder), tuple(part.name for part in wanted))


def known_manifest(layout: Layout, model_id: str, storage: Storage = None) -> ModelManifest:
    """The manifest of a published model, or of a fixture that lies in the storage.

    Raises:
        InputError: no such model, or its manifest is malformed or contradicts itself.
        StorageError: the storage is refused.
    """
    if model_id not in model_ids(layout) and re.match(ID_PATTERN, model_id):
        folder = model_folder(storage_root(layout, storage), model_id)
        if (folder / FIXTURE_MANIFEST).is_file():
            manifest = load_fixture_manifest(folder)
            if manifest.id != model_id:
                raise InputError(
                    f"the folder of {model_id} holds the fixture {manifest.id}", where=str(folder), remedy="name it as its folder"
                )
            return manifest
    refuse_target(layout, model_id)
    return load_model_manifest(layout, model_id)


def verified_model(layout: Layout, model_id: str, storage: Storage = None) -> LocalModel:
    """The model as it lies in storage, every part hashed. Writes nothing: storage may be mounted read-only.

    Raises:
        FetchError: it has not been pulled.
        IntegrityError: a part is missing or its bytes are wrong.
        InputError, StorageError: as for :func:`provision`.
    """
    manifest = known_manifest(layout, model_id, storage)
    folder = model_folder(storage_root(layout, storage), model_id)
    pull_command, repair_command = _command(model_id, storage), _command(model_id, storage, "--repair")
    if manifest.synthesis is not None:
        pull_command = repair_command = f"remove {folder} and make the fixture anew with dgrctl model synth"
    # Completeness first: no part is hashed for a set that cannot be used anyway.
    missing = [finding for finding in presence(folder, manifest) if finding.state is State.MISSING]
    if len(missing) == len(manifest.parts):
        raise FetchError(f"the model {model_id} has not been pulled", where=str(folder), remedy=pull_command)
    if missing:
        raise IntegrityError(
            f"{len(missing)} of the {len(manifest.parts)} parts of {model_id} are missing",
            where=str(missing[0].path),
            detail=_lines(missing),
            remedy=pull_command,
        )
    _refuse_bad(survey(folder, manifest), repair_command)
    return open_set(layout, manifest, folder)


@contextlib.contextmanager
def held_model(layout: Layout, model_id: str, storage: Storage = None) -> Iterator[None]:
    """Lets nobody pull, repair or make the model during the block, while other readers may go on.

    A user who may neither make nor read the lock file holds nothing.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(StorageError, OSError):
            root = storage_root(layout, storage)
            path = root / ".locks" / f"{model_id}.lock"
            stack.enter_context(file_lock(path, f"model {model_id} in {root}", shared=True))
        yield


def statuses(layout: Layout, storage: Storage = None) -> list[ModelStatus]:
    """Every published model and every fixture in the storage, with what a look at file sizes says about it."""
    root = storage_root(layout, storage)
    found: list[ModelStatus] = []
    published = model_ids(layout)
    fixtures = sorted(path.parent.name for path in root.glob(f"[!.]*/{FIXTURE_MANIFEST}") if path.parent.name not in published)
    for model_id in (*published, *fixtures):
        manifest = known_manifest(layout, model_id, storage)
        folder = model_folder(root, model_id)
        states = [finding.state for finding in presence(folder, manifest)]
        missing = states.count(State.MISSING)
        state = "absent" if missing == len(states) else "present" if states.count(State.GOOD) == len(states) else "incomplete"
        found.append(ModelStatus(manifest, state, folder))
    return found


def _is_whole(folder: Path, manifest: ModelManifest) -> bool:
    """Whether every part is there with its size, and nothing is left of pulls that were killed."""
    if any(finding.state is not State.GOOD for finding in presence(folder, manifest)):
        return False
    leftovers = [folder / wheel.INCOMING, *(wheel.partial_path(folder / part.name) for part in manifest.parts)]
    return not any(path.exists() for path in leftovers)


def _make_folder(folder: Path) -> None:
    try:
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the model's folder cannot be made: {error.strerror}", where=str(folder), remedy="move away what stands in its place"
        ) from error


def _bring(manifest: ModelManifest, wanted: Sequence[Part], folder: Path) -> None:
    names = {part.name for part in wanted}
    whole = [source for source in manifest.sources if names & set(source.provides)]
    pieced = [Pieced.of(manifest, part, folder) for part in wanted if manifest.pieces_of(part.name)]
    _sweep(manifest, [*whole, *(source for part in pieced for source in part.missing)], folder)
    if not wanted:
        return
    require_space(folder, _space_needed(whole, pieced, wanted, folder), f"pulling {manifest.id}")
    for source in whole:
        wheel.bring(source, [part for part in wanted if part.name in source.provides], folder)
    for part in pieced:
        part.bring()
    _sweep(manifest, (), folder)


def _space_needed(whole: Sequence[Source], pieced: Sequence[Pieced], wanted: Sequence[Part], folder: Path) -> int:
    """The most bytes that are taken at once: pip holds a download twice; a package goes once its parts are unpacked."""
    sizes = {part.name: part.size for part in wanted}
    needed = kept = 0
    for source in whole:
        unpacked = sum(sizes.get(name, 0) for name in source.provides)
        there = wheel.downloaded_bytes(source, folder)
        download = 0 if there else 2 * source.size
        needed = max(needed, kept + download, kept + unpacked + (source.size - there))
        kept += unpacked
    for part in pieced:
        needed = max(needed, kept + part.space_needed())
        kept += part.part.size
    return needed


def _sweep(manifest: ModelManifest, keep: Sequence[Source], folder: Path) -> None:
    """Removes what killed pulls left behind, but for downloads that ``keep`` names. Only for the holder of the lock."""
    with storage_errors(folder):
        for part in manifest.parts:
            wheel.partial_path(folder / part.name).unlink(missing_ok=True)
    wheel.sweep(folder, keep)


def _refuse_bad(findings: Sequence[Finding], remedy: str) -> None:
    bad = [finding for finding in findings if finding.state is State.BAD]
    if bad:
        raise IntegrityError(
            f"{bad[0].part.name} is not the file that was recorded: {bad[0].what}",
            where=str(bad[0].path),
            detail=_lines(bad) if len(bad) > 1 else None,
            remedy=remedy,
        )


def _lines(findings: Sequence[Finding]) -> str:
    return "\n".join(f"{finding.part.name}: {finding.what or finding.state.value}" for finding in findings)


def _command(model_id: str, storage: Storage, *options: str) -> str:
    where = ("--storage", os.fspath(storage)) if storage is not None else ()
    return shlex.join(("dgrctl", "model", "pull", model_id, *options, *where))
