"""The real pin and the real stack, as this checkout holds them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dgrctl.errors import IntegrityError
from dgrctl.layout import Layout
from dgrctl.upstream.export import export
from dgrctl.upstream.fetch import verify_pristine
from dgrctl.upstream.series import load_lock
from dgrctl.upstream.stack import apply, verify_workspace


@pytest.fixture
def elsewhere(layout: Layout, tmp_path: Path) -> Layout:
    """Another checkout at another path: the same manifests and patches, and a copy of the fetched source."""
    if not layout.pristine.exists():
        pytest.fail("llama.cpp was not fetched; dgrctl fetch", pytrace=False)
    copy = Layout(tmp_path / "a checkout elsewhere")
    for folder in ("manifests", "patches"):
        shutil.copytree(layout.root / folder, copy.root / folder)
    shutil.copytree(layout.pristine, copy.pristine, symlinks=True)
    return copy


def test_stack_gives_the_locked_head_at_another_path_and_exports_to_itself(elsewhere: Layout) -> None:
    verify_pristine(elsewhere)
    lock = load_lock(elsewhere)
    result = apply(elsewhere)
    assert (result.applied, result.workspace_head, result.workspace_tree) == (True, lock.head, lock.tree)
    again = export(elsewhere)
    assert (again.written, again.removed) == ((), ())


def test_one_changed_byte_among_all_files_is_named(elsewhere: Layout) -> None:
    """With size and modification time kept."""
    path = elsewhere.pristine / "ggml" / "src" / "ggml-cpu" / "ops.cpp"
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(IntegrityError) as caught:
        verify_pristine(elsewhere)
    assert caught.value.where == str(path)


def test_this_checkout_holds_what_it_should(layout: Layout) -> None:
    verify_pristine(layout)
    result = verify_workspace(layout)
    assert result.applied
    assert result.lines.over_budget() == []
