"""A source package as carrier: its hash first, then only the git directory, and nothing of it outside its folder."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import source_package
from source_package import GIT_DIR, write_package
from upstream_checkout import Checkout

from dgrctl.errors import FetchError, IntegrityError
from dgrctl.upstream.fetch import fetch, verify_pristine
from dgrctl.upstream.sdist import extract_git_directory


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of pip's world."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_package_is_downloaded_once_and_proven(checkout: Checkout, index: Path) -> None:
    package = write_package(index, checkout.upstream.folder)
    checkout.write_manifest(source_package.transport(package))
    assert fetch(checkout.layout).transport == "sdist"
    verify_pristine(checkout.layout)
    package.unlink()
    assert fetch(checkout.layout, force=True).transport == "sdist"


def test_download_that_was_changed_on_disk_is_thrown_away(checkout: Checkout, index: Path) -> None:
    package = write_package(index, checkout.upstream.folder)
    checkout.write_manifest(source_package.transport(package))
    kept = checkout.layout.downloads / "upstream" / package.name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(package.read_bytes()[:-1] + b"x")
    assert fetch(checkout.layout).transport == "sdist"
    assert kept.read_bytes() == package.read_bytes()


def test_package_with_another_hash_never_runs(
    checkout: Checkout, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKEND_TRACE", str(tmp_path / "ran"))
    package = write_package(index, checkout.upstream.folder)
    checkout.write_manifest(source_package.transport(package, sha256="0" * 64))
    with pytest.raises(FetchError) as caught:
        fetch(checkout.layout)
    assert "does not have the pinned SHA-256" in str(caught.value.detail)
    assert not (tmp_path / "ran").exists()
    assert not checkout.layout.pristine.exists()


def test_package_without_the_git_directory_is_refused(checkout: Checkout, index: Path) -> None:
    package = write_package(index, checkout.upstream.folder)
    checkout.write_manifest(source_package.transport(package, git_dir=".git/modules/other"))
    with pytest.raises(FetchError) as caught:
        fetch(checkout.layout)
    assert "no git directory at .git/modules/other" in str(caught.value.detail)


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        _member(f"top/{GIT_DIR}/objects/../../../../../escaped"),
        _member(f"top/{GIT_DIR}/objects/link", tarfile.SYMTYPE, "/etc/passwd"),
        _member(f"top/{GIT_DIR}/objects/link", tarfile.LNKTYPE, "/etc/passwd"),
        _member(f"top/{GIT_DIR}/objects/pipe", tarfile.FIFOTYPE),
        _member(f"top/{GIT_DIR}/hooks/post-checkout"),
        _member(f"top/{GIT_DIR}/config"),
        _member(f"top/{GIT_DIR}/objects-more"),
        _member("/escaped"),
        _member("../escaped"),
        _member("escaped"),
    ],
)
def test_nothing_but_the_git_directory_comes_out(checkout: Checkout, tmp_path: Path, member: tarfile.TarInfo) -> None:
    package = write_package(tmp_path / "index", checkout.upstream.folder, [member])
    target = tmp_path / "out" / "git"
    try:
        extract_git_directory(package, GIT_DIR, target)
    except FetchError:
        pass
    else:
        assert {path.name for path in target.iterdir()} <= {"HEAD", "packed-refs", "shallow", "objects", "refs"}
    assert not list(tmp_path.rglob("*escaped*"))
    assert not [path for path in target.rglob("*") if path.is_symlink() or path.is_fifo()]


@pytest.mark.parametrize("name", ["HEAD", "HEAD/below"])
def test_a_member_in_the_place_of_another_is_refused(checkout: Checkout, tmp_path: Path, name: str) -> None:
    package = write_package(tmp_path / "index", checkout.upstream.folder, [_member(f"top/{GIT_DIR}/{name}")])
    with pytest.raises(FetchError, match="cannot be unpacked"):
        extract_git_directory(package, GIT_DIR, tmp_path / "git")


@pytest.mark.parametrize("cut", [0, 10, 1000, 5000])
def test_truncated_package_is_refused(checkout: Checkout, tmp_path: Path, cut: int) -> None:
    package = write_package(tmp_path / "index", checkout.upstream.folder)
    package.write_bytes(package.read_bytes()[:cut])
    with pytest.raises((FetchError, IntegrityError)):
        extract_git_directory(package, GIT_DIR, tmp_path / "git")
