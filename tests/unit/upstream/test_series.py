"""Patches and lock belong together, or the one that was changed is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
from upstream_checkout import FIRST, SECOND, THIRD, Checkout

from dgrctl.errors import InputError, PatchError
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.series import LOCK_NAME, Series, load_series, stack_digest

Edit = Callable[[Checkout], object]


def _load(checkout: Checkout) -> Series:
    return load_series(checkout.layout, load_manifest(checkout.layout))


def test_digest_is_that_of_the_documented_document() -> None:
    patches = [("0001-a.patch", "1" * 64), ("0002-b.patch", "2" * 64)]
    document = (
        f'{{"patches":[{{"name":"0001-a.patch","sha256":"{"1" * 64}"}},{{"name":"0002-b.patch","sha256":"{"2" * 64}"}}],'
        f'"pin":"{"c" * 40}","schema":1}}'
    )
    assert stack_digest("c" * 40, patches) == hashlib.sha256(document.encode()).hexdigest()
    assert stack_digest("c" * 40, patches[::-1]) != stack_digest("c" * 40, patches)
    assert stack_digest("d" * 40, patches) != stack_digest("c" * 40, patches)


def test_lock_counts_lines_by_owner(stacked: Checkout) -> None:
    lock = _load(stacked).lock
    assert [(patch.name, patch.added, patch.removed) for patch in lock.patches] == [
        (FIRST, 1, 0),
        (SECOND, 1, 1),
        (THIRD, 1, 0),
    ]
    assert (lock.lines.core.changed, lock.lines.core.budget) == (3, 249)
    assert {name: (count.changed, count.budget) for name, count in lock.lines.architectures.items()} == {"llama": (1, 6)}


def _rename(checkout: Checkout, old: str, new: str) -> None:
    (checkout.layout.patches / old).rename(checkout.layout.patches / new)


def _swap(checkout: Checkout) -> None:
    first, second = (checkout.layout.patches / name for name in (FIRST, SECOND))
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


def _patch(checkout: Checkout, edit: Callable[[bytes], bytes]) -> None:
    path = checkout.layout.patches / SECOND
    path.write_bytes(edit(path.read_bytes()))


def _link(checkout: Checkout) -> None:
    path = checkout.layout.patches / SECOND
    path.rename(path.with_name("target"))
    path.symlink_to("target")


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda c: (c.layout.patches / FIRST).unlink(), FIRST),
        (lambda c: (c.layout.patches / "0004-Extra.patch").write_bytes(b""), "0004-Extra.patch"),
        (lambda c: (c.layout.patches / "notes.patch").write_bytes(b""), "notes.patch"),
        (lambda c: _rename(c, THIRD, "0004-Llama-third.patch"), THIRD),
        (_swap, FIRST),
        (lambda c: _patch(c, lambda data: data.replace(b"thirty", b"dirty")), SECOND),
        (lambda c: _patch(c, lambda data: data[:-10]), SECOND),
        (lambda c: _patch(c, lambda _: b""), SECOND),
        (lambda c: _patch(c, lambda data: data.replace(b"\n", b"\r\n")), SECOND),
        (_link, SECOND),
    ],
)
def test_changed_patch_files_are_refused_by_name(stacked: Checkout, edit: Edit, named: str) -> None:
    edit(stacked)
    with pytest.raises(PatchError) as caught:
        _load(stacked)
    assert str(caught.value.where) == str(stacked.layout.patches / named)
    assert caught.value.remedy


def _lock(checkout: Checkout, edit: Callable[[dict[str, object]], object]) -> None:
    path = checkout.layout.patches / LOCK_NAME
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))


def _entry(document: dict[str, object], number: int) -> dict[str, object]:
    patches = document["patches"]
    assert isinstance(patches, list)
    entry = patches[number]
    assert isinstance(entry, dict)
    return entry


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.update(pin="0" * 40),
        lambda d: d.update(upstream_tree="0" * 40),
        lambda d: d.update(stack_digest="0" * 64),
        lambda d: _entry(d, 0).update(added=0),
        lambda d: _entry(d, 0).update(name="0002-Core-first.patch"),
        lambda d: _entry(d, 0).update(name="../0001-Core-first.patch"),
        lambda d: d["patches"].reverse(),
        lambda d: d["lines"]["core"].update(changed=1),
        lambda d: d["lines"]["core"].update(budget=9999),
        lambda d: d["lines"]["architectures"].clear(),
    ],
)
def test_edited_lock_is_refused_by_name(stacked: Checkout, edit: Callable[[dict[str, object]], object]) -> None:
    _lock(stacked, edit)
    with pytest.raises(PatchError) as caught:
        _load(stacked)
    assert str(caught.value.where) == str(stacked.layout.patches / LOCK_NAME)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.update(schema=2),
        lambda d: d.update(schema="1"),
        lambda d: d.pop("tree"),
        lambda d: d.update(head="HEAD"),
        lambda d: d.update(comment="x"),
        lambda d: d.update(patches=None),
        lambda d: _entry(d, 0).update(added=-1),
        lambda d: _entry(d, 0).update(sha256="0"),
    ],
)
def test_malformed_lock_is_refused_by_field(stacked: Checkout, edit: Callable[[dict[str, object]], object]) -> None:
    _lock(stacked, edit)
    with pytest.raises(InputError) as caught:
        _load(stacked)
    assert LOCK_NAME in str(caught.value.where)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100000, b'{"schema":1,"schema":1}'])
def test_lock_that_is_no_document_is_refused(stacked: Checkout, content: bytes) -> None:
    (stacked.layout.patches / LOCK_NAME).write_bytes(content)
    with pytest.raises(InputError) as caught:
        _load(stacked)
    assert LOCK_NAME in str(caught.value.where)


def test_missing_lock_is_refused(stacked: Checkout) -> None:
    (stacked.layout.patches / LOCK_NAME).unlink()
    with pytest.raises(InputError, match="no such series lock"):
        _load(stacked)


def test_moved_pin_is_refused_until_the_lock_follows(stacked: Checkout) -> None:
    stacked.upstream.run("checkout", "--quiet", "--detach", "HEAD~1")
    stacked.write_manifest(stacked.git_transport())
    with pytest.raises(PatchError, match="the lock is for pin"):
        _load(stacked)


def test_patch_over_the_budget_is_refused_even_if_locked(stacked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the budget of a later version is lower than the one that a lock was written under."""
    monkeypatch.setattr("dgrctl.upstream.budget.CORE_LINES", 2)
    _lock(stacked, lambda d: d["lines"]["core"].update(budget=2))  # type: ignore[index]
    with pytest.raises(PatchError, match="core: 3 of 2"):
        _load(stacked)
