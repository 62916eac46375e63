"""Upstream's git directory out of a Python source package: downloaded by pip, checked by hash, unpacked with care."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path, PurePosixPath

from dgrctl.errors import FetchError
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

    Only regular files are written, each for the first time and under a name that leads nowhere else; links and devices,
    configuration and hooks are left out. (tarfile's own filters are missing from the Python of Debian 12.)

    Raises:
        FetchError: no such directory in the package, or the package is damaged.
        StorageError: the disk is full.
    """
    try:
        with storage_errors(target), tarfile.open(package, "r:gz") as archive:
            target.mkdir(parents=True)
            for member in archive:
                name = _below(member.name, git_dir)
                content = archive.extractfile(member) if name is not None and member.isfile() else None
                if name is None or content is None:
                    continue
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("xb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, ValueError, FileExistsError, NotADirectoryError) as error:
        raise FetchError(f"the package cannot be unpacked: {error}", where=str(package)) from error
    if not (target / "objects").is_dir() or not (target / "HEAD").is_file():
        raise FetchError(f"the package holds no git directory at {git_dir}", where=str(package))
    (target / "refs").mkdir(exist_ok=True)


def _below(name: str, git_dir: str) -> str | None:
    """The wanted member's path below ``git_dir``, or None for any other member.

    Raises:
        ValueError: it is a path that leads out of there.
    """
    parts = PurePosixPath(name).parts[1:]
    prefix = PurePosixPath(git_dir).parts
    if parts[: len(prefix)] != prefix:
        return None
    if ".." in parts:
        raise ValueError(f"{name} leads out of its folder")
    rest = "/".join(parts[len(prefix) :])
    return rest if any(rest == wanted or rest.startswith(wanted) for wanted in _WANTED) else None
