"""The storage root: where it comes from and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_models import make_checkout

from dgrctl.artifacts.storage import model_folder, refuse_home, require_space, storage_root
from dgrctl.errors import StorageError
from dgrctl.layout import Layout


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.delenv("DGR_STORAGE", raising=False)
    return make_checkout(tmp_path / "checkout")


def refusal(layout: Layout, override: str | Path | None = None, *, create: bool = False) -> StorageError:
    with pytest.raises(StorageError) as caught:
        storage_root(layout, override, create=create)
    assert caught.value.where
    assert caught.value.remedy
    return caught.value


def test_order_of_precedence(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage_root(layout) == layout.state / "models"
    monkeypatch.setenv("DGR_STORAGE", str(tmp_path / "environment"))
    assert storage_root(layout) == tmp_path / "environment"
    assert storage_root(layout, tmp_path / "option") == tmp_path / "option"
    monkeypatch.setenv("DGR_STORAGE", "")
    assert storage_root(layout) == layout.state / "models"


def test_it_is_made_only_when_asked(layout: Layout, tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    assert storage_root(layout, wanted) == wanted
    assert not wanted.exists()
    storage_root(layout, wanted, create=True)
    assert wanted.is_dir()


def test_links_are_resolved(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert storage_root(layout, tmp_path / "link") == tmp_path / "real"


@pytest.mark.parametrize("path", ["/home", "/home/somebody", "/home/somebody/models", "/tmp/../home/x", "//home/x", "/home/."])  # noqa: S108
def test_refuses_home(layout: Layout, path: str) -> None:
    assert "DGR_STORAGE" in (refusal(layout, path).remedy or "")


def test_a_path_that_only_passes_home_by_is_taken(layout: Layout, tmp_path: Path) -> None:
    assert storage_root(layout, f"/home/..{tmp_path}") == tmp_path
    assert storage_root(layout, tmp_path / "home") == tmp_path / "home"


def test_refuses_a_link_into_home(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/home/somebody")
    (tmp_path / "second").symlink_to(tmp_path / "link")
    for path in (tmp_path / "link", tmp_path / "link" / "models", tmp_path / "second"):
        error = refusal(layout, path)
        assert "/home/somebody" in error.what
    # The folder of a model and a part can be links of their own.
    (tmp_path / "tiny").symlink_to("/home/somebody/tiny")
    with pytest.raises(StorageError, match="not kept below /home"):
        model_folder(tmp_path, "tiny")


def test_refuses_home_by_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A /home that is itself a link, or is mounted a second time, is recognised by its identity."""
    models = tmp_path / "elsewhere" / "models"
    models.mkdir(parents=True)
    refuse_home(models, "test")
    (tmp_path / "alias").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr("dgrctl.artifacts.storage._HOME", tmp_path / "alias")
    with pytest.raises(StorageError):
        refuse_home(models, "test")


def test_a_checkout_in_home_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DGR_STORAGE", raising=False)
    error = refusal(Layout(Path("/home/somebody/dgr")))
    assert error.where == "default storage of this checkout: /home/somebody/dgr/.dgr/models"
    assert "export DGR_STORAGE=" in (error.remedy or "")


@pytest.mark.parametrize("path", ["models", "./models", "../models", "~/models", ""])
def test_refuses_a_relative_path(layout: Layout, path: str) -> None:
    assert "relative" in refusal(layout, path).what


def test_says_which_setting_named_it(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGR_STORAGE", "models")
    assert refusal(layout).where == "DGR_STORAGE"
    assert refusal(layout, "models").where == "--storage"


def test_refuses_what_is_not_a_folder(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "not a folder" in refusal(layout, tmp_path / "file").what
    assert "cannot be used" in refusal(layout, tmp_path / "file" / "below", create=True).what
    assert "cannot be used" in refusal(layout, tmp_path / ("n" * 300)).what
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be" in refusal(layout, tmp_path / "loop").what


def test_refuses_what_cannot_be_written(layout: Layout) -> None:
    # /proc refuses new folders even to root.
    assert refusal(layout, "/proc/models", create=True)
    if os.geteuid() != 0:
        assert "cannot be written to" in refusal(layout, "/usr", create=True).what


def test_space_is_checked_by_the_byte(tmp_path: Path) -> None:
    require_space(tmp_path, 0, "nothing")
    with pytest.raises(StorageError, match="pulling everything takes 1,152,921,504,606,846,976 more bytes") as caught:
        require_space(tmp_path, 2**60, "pulling everything")
    assert "DGR_STORAGE" in (caught.value.remedy or "")
