"""Lines count for whom they serve."""

from __future__ import annotations

import pytest

from dgrctl.upstream.budget import changed_lines, limit_of, owner_of
from dgrctl.upstream.patchfile import FileChange


@pytest.mark.parametrize(
    ("path", "owner", "limit"),
    [
        ("src/llama-model.cpp", "core", 249),
        ("src/models/models.h", "core", 249),
        ("src/models/llama.cpp", "llama", 6),
        ("src/models/ernie4-5.cpp", "ernie4-5", 6),
        ("src/models/deepseek4.cpp", "deepseek4", 40),
        ("src/llama-kv-cache-dsv4.h", "deepseek4", 40),
        ("src/llama-kv-cache-dsv4.cpp", "deepseek4", 40),
        ("src/llama-kv-cache.cpp", "core", 249),
        ("tools/src/models/llama.cpp", "core", 249),
        ("src/models/sub/llama.cpp", "core", 249),
    ],
)
def test_owner_and_limit(path: str, owner: str, limit: int) -> None:
    assert owner_of(path) == owner
    assert limit_of(owner) == limit


def test_added_and_removed_lines_add_up_by_owner() -> None:
    blobs = ("0" * 40, "1" * 40)
    changes = [
        FileChange("src/models/qwen3.cpp", blobs, 2, 1),
        FileChange("src/a.cpp", blobs, 5, 0),
        FileChange("src/models/llama.cpp", blobs, 1, 0),
        FileChange("include/b.h", blobs, 0, 4),
    ]
    assert changed_lines(changes) == {"core": 9, "llama": 1, "qwen3": 3}
    assert list(changed_lines(changes)) == ["core", "llama", "qwen3"]


def test_core_is_counted_even_if_untouched() -> None:
    assert changed_lines([]) == {"core": 0}
