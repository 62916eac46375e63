"""Files that travel inside Python packages: downloaded by pip, by name and hash. Nothing of them is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dgrctl.console import progress
from dgrctl.errors import DgrError, FetchError, IntegrityError, StorageError, ToolchainError
from dgrctl.files import sha256_file, storage_errors
from dgrctl.offspring import marked

_WATCH_SECONDS = 0.2
_LOG_LINES = 12


@dataclass(frozen=True)
class PinnedPackage:
    """One file of a package index. ``binary``: a wheel; else a source archive, whose metadata hook pip runs."""

    distribution: str
    version: str
    filename: str
    size: int  # bytes
    sha256: str
    binary: bool

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


def obtain(package: PinnedPackage, folder: Path) -> Path:
    """The file of ``package`` in ``folder``: what lies there if its hash is right, else downloaded, with a progress bar.

    The caller holds a lock for ``folder``. A kill leaves the whole file or none under its name, and at most a folder
    ``attempt-*`` that the next call removes.

    Raises:
        FetchError: pip could not bring it, or it arrived with another hash.
        IntegrityError: pip took for right what was not pinned.
        StorageError: the disk is full or forbidden.
        ToolchainError: this Python has no pip.
    """
    target = folder / package.filename
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("attempt-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if target.is_file() and sha256_file(target) == package.sha256:
            return target
        target.unlink(missing_ok=True)
        # A folder for this attempt alone: a pip whose dgrctl was killed may still be writing into another.
        attempt = Path(tempfile.mkdtemp(prefix="attempt-", dir=folder))
        try:
            _download(package, attempt)
            _adopt(package, attempt / "package" / package.filename, target)
        finally:
            shutil.rmtree(attempt, ignore_errors=True)
    return target


def _download(package: PinnedPackage, attempt: Path) -> None:
    scratch, requirements = attempt / "scratch", attempt / "requirements.txt"
    scratch.mkdir()
    requirements.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    form = ["--only-binary", ":all:"] if package.binary else ["--no-binary", package.distribution]
    # -I: neither the working folder nor PYTHONPATH may put another pip in place of this environment's.
    command = [sys.executable, "-I", "-m", "pip", "download", "--no-deps", "--require-hashes", *form]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(attempt / "package"), "--requirement", str(requirements)]
    with progress(f"Downloading {package.requirement}", total=package.size, unit="bytes") as update:
        # Its output is kept in memory: the disk may be what it complains about.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=marked({**os.environ, "TMPDIR": str(scratch)}),
        )
        try:
            log = _watch(process, lambda: update(min(_folder_bytes(scratch), package.size), None))
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise _failure(package, process.returncode, log.decode("utf-8", errors="replace"))


def _watch(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> bytes:
    """Waits for the process, calling ``tick`` several times a second; returns its output."""
    while True:
        try:
            return process.communicate(timeout=_WATCH_SECONDS)[0]
        except subprocess.TimeoutExpired:
            tick()


def _failure(package: PinnedPackage, code: int, log: str) -> DgrError:
    tail = "\n".join(log.rstrip().splitlines()[-_LOG_LINES:])
    if "No module named pip" in log:
        return ToolchainError("this Python has no pip", where=sys.executable, remedy=f"{sys.executable} -m ensurepip")
    if "No space left on device" in log or "Disk quota exceeded" in log:
        return StorageError(
            f"the disk filled up while {package.requirement} was downloaded",
            where=package.filename,
            detail=tail,
            remedy="free space on that disk and run the same command again; what is complete is kept",
        )
    if "DO NOT MATCH THE HASHES" in log:
        # A connection that breaks off looks the same to some versions of pip.
        return FetchError(
            f"what arrived for {package.requirement} does not have the pinned SHA-256, and was thrown away",
            where=package.filename,
            detail=tail,
            remedy="run the same command again; if it repeats, the package index offers another file: do not use it",
        )
    how = f"pip ended with {code}" if code >= 0 else f"pip was ended by signal {-code}"
    return FetchError(
        f"{package.requirement} could not be downloaded: {how}",
        where=package.filename,
        detail=tail,
        remedy="check the network and pip's configuration (pip config list), then run the same command again",
    )


def _adopt(package: PinnedPackage, downloaded: Path, target: Path) -> None:
    """Takes what pip brought, once its name, size and hash are the pinned ones."""
    if not downloaded.is_file():
        brought = ", ".join(sorted(path.name for path in downloaded.parent.glob("*"))) or "nothing"
        raise IntegrityError(
            f"pip brought {brought} for {package.requirement}", where=package.filename, remedy="correct the pinned file name"
        )
    size, sha256 = downloaded.stat().st_size, sha256_file(downloaded)
    if (size, sha256) != (package.size, package.sha256):
        raise IntegrityError(
            f"the file has {size} bytes and the SHA-256 {sha256}; pinned are {package.size} and {package.sha256}",
            where=package.filename,
            remedy="run the same command again; if it repeats, correct what is pinned",
        )
    downloaded.replace(target)


def _folder_bytes(folder: Path) -> int:
    """Bytes of all files below ``folder``, which come and go while they are counted."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total
