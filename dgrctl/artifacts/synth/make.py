"""Making a fixture model: its files and their hashed manifest, all at once or not at all.

Everything is written into a folder with a name of its own beside the final one and becomes the final one by a single rename, once
it is durable. A kill at any point leaves at most that folder, which the next run removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.artifacts.inventory import take_inventory
from dgrctl.artifacts.local import LocalModel, State, open_set, survey
from dgrctl.artifacts.manifest import FIXTURE_MANIFEST, ModelManifest, Part, Synthesis, load_fixture_manifest
from dgrctl.artifacts.provision import Storage
from dgrctl.artifacts.storage import model_folder, refuse_home, require_space, storage_root
from dgrctl.artifacts.synth.deepseek4 import GENERATOR, DeepSeek4
from dgrctl.artifacts.synth.writer import PlannedTensor, write_set
from dgrctl.console import progress
from dgrctl.errors import InputError, IntegrityError, StorageError
from dgrctl.files import sha256_file, storage_errors, sync_folder, write_atomic
from dgrctl.layout import Layout
from dgrctl.statelock import file_lock

_HEADER_ALLOWANCE = 1024 * 1024  # bytes for headers, padding and the manifest


@dataclass(frozen=True)
class Synthesised:
    """A fixture model, and whether it was made now (False: it was there, complete and as recorded)."""

    model: LocalModel
    made: bool


def synthesise(
    layout: Layout, fixture: DeepSeek4, *, parts: int = 1, output: Path | None = None, storage: Storage = None
) -> Synthesised:
    """Makes ``fixture``, or finds that it is there.

    Args:
        parts: Files of the set; with more than one, the first holds metadata alone.
        output: The folder for the set. Default: the folder of its id in the model storage.

    Raises:
        InputError: more parts than tensors can fill.
        StorageError: the folder is refused, holds something else, or the disk is full, read-only or forbidden.
        IntegrityError: the fixture is there and its bytes are not the recorded ones.
    """
    tensors = fixture.tensors()
    if not 1 <= parts <= len(tensors) + 1:
        raise InputError(
            f"{fixture.name} cannot be split into {parts} files",
            where="--parts",
            remedy=f"name 1 to {len(tensors) + 1}: the first of several holds no tensor, each other one at least",
        )
    model_id = fixture.name if parts == 1 else f"{fixture.name}-p{parts}"
    there = model_folder(storage_root(layout, storage), model_id) if output is None else output.absolute()
    refuse_home(there, "--output")
    if (there / FIXTURE_MANIFEST).is_file() and not _working(there).exists():
        # No lock and no write: the folder may be another user's.
        return Synthesised(_verified(layout, there.resolve(), model_id, fixture), made=False)
    folder = _destination(layout, model_id, output, storage)
    with file_lock(folder.parent / ".locks" / f"{folder.name}.lock", f"model {model_id} in {folder.parent}"):
        working = _working(folder)
        with storage_errors(working):
            shutil.rmtree(working, ignore_errors=True)
        if _is_there(folder):
            return Synthesised(_verified(layout, folder, model_id, fixture), made=False)
        require_space(folder.parent, sum(tensor.bytes for tensor in tensors) + _HEADER_ALLOWANCE, f"making {model_id}")
        try:
            with storage_errors(working), progress(f"Making {model_id}"):
                working.mkdir()
                _fill(working, model_id, fixture, parts, tensors)
                working.rename(folder)
        finally:
            shutil.rmtree(working, ignore_errors=True)
        sync_folder(folder.parent)
        return Synthesised(open_set(layout, load_fixture_manifest(folder), folder), made=True)


def _working(folder: Path) -> Path:
    """Where a fixture lies until it is whole."""
    return folder.with_name(f".{folder.name}.partial")


def _destination(layout: Layout, model_id: str, output: Path | None, storage: Storage) -> Path:
    if output is None:
        return model_folder(storage_root(layout, storage, create=True), model_id)
    refuse_home(output.absolute(), "--output")
    folder = output.resolve()
    try:
        with storage_errors(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the output folder cannot be made: {error.strerror}", where=str(folder), remedy="name another folder with --output"
        ) from error
    return folder


def _is_there(folder: Path) -> bool:
    """Whether the final folder holds something; an empty one is filled."""
    with storage_errors(folder):
        if not folder.exists() and not folder.is_symlink():
            return False
        if not folder.is_dir():
            raise StorageError(
                "a file stands where the model's folder must be", where=str(folder), remedy="move away what stands in its place"
            )
        if not any(folder.iterdir()):
            return False
        if not (folder / FIXTURE_MANIFEST).is_file():
            raise StorageError(
                "this folder holds something that is no fixture model",
                where=str(folder),
                remedy="name another folder with --output, or move away what it holds",
            )
    return True


def _verified(layout: Layout, folder: Path, model_id: str, fixture: DeepSeek4) -> LocalModel:
    manifest = load_fixture_manifest(folder)
    wanted = Synthesis(generator=GENERATOR, arguments=fixture.arguments)
    if (manifest.id, manifest.synthesis) != (model_id, wanted):
        raise StorageError(
            f"this folder holds another fixture: {manifest.id}", where=str(folder), remedy="name another folder with --output"
        )
    for finding in survey(folder, manifest):
        if finding.state is not State.GOOD:
            raise IntegrityError(
                f"{finding.part.name} is not the file that was made: {finding.what or 'it is missing'}",
                where=str(finding.path),
                remedy=f"remove {folder} and run the same command again",
            )
    return open_set(layout, manifest, folder)


def _fill(folder: Path, model_id: str, fixture: DeepSeek4, parts: int, tensors: Sequence[PlannedTensor]) -> None:
    paths = write_set(folder, fixture.name, parts, fixture.pairs(), tensors)
    inventory = take_inventory([read_header(path) for path in paths])
    manifest = ModelManifest(
        schema=1,
        id=model_id,
        model_class="fixture",
        title=f"Fixture {model_id}: random weights",
        license="Apache-2.0",
        architecture=inventory.architecture,
        layer_count=len(inventory.layer_bytes),
        quantisation=inventory.quantisation,
        tokenizer_sha256=inventory.tokenizer_sha256 or "",
        parts=tuple(Part(name=path.name, size=path.stat().st_size, sha256=sha256_file(path)) for path in paths),
        synthesis=Synthesis(generator=GENERATOR, arguments=fixture.arguments),
    )
    write_atomic(folder / FIXTURE_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
