"""A Python source package that carries a git directory, as the sdist transport expects one; pip can take it offline."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

NAME, VERSION = "carries-upstream", "1.0"
FILENAME = f"carries_upstream-{VERSION}.tar.gz"
GIT_DIR = ".git/modules/vendor/upstream"

# A build backend in the package itself needs nothing else to be installed. It leaves a trace if it is run.
_PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_METADATA = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
_BACKEND = f"""
import os, pathlib
def prepare_metadata_for_build_wheel(folder, settings=None):
    if "BACKEND_TRACE" in os.environ:
        pathlib.Path(os.environ["BACKEND_TRACE"]).touch()
    info = pathlib.Path(folder, "carries_upstream-{VERSION}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text({_METADATA!r})
    return info.name
def build_wheel(folder, settings=None, metadata=None):
    raise SystemExit("not to be built")
"""


def write_package(folder: Path, repository: Path, hostile: Iterable[tarfile.TarInfo] = ()) -> Path:
    """Packs ``repository``'s git directory; ``hostile`` members go in behind it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILENAME
    top = FILENAME.removesuffix(".tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"pyproject.toml": _PYPROJECT, "backend.py": _BACKEND, "PKG-INFO": _METADATA}.items():
            _add(archive, tarfile.TarInfo(f"{top}/{name}"), text.encode())
        archive.add(repository / ".git", f"{top}/{GIT_DIR}")
        for member in hostile:
            _add(archive, member, b"x" * member.size)
    return path


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def transport(path: Path, **changes: str | int) -> str:
    """The manifest's table for the package at ``path``."""
    fields: dict[str, object] = {
        "kind": "sdist",
        "package": NAME,
        "version": VERSION,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "git_dir": GIT_DIR,
    } | changes
    return "[[transports]]\n" + "".join(
        f"{name} = {value}\n" if isinstance(value, int) else f'{name} = "{value}"\n' for name, value in fields.items()
    )
