"""Canonical JSON: one document, one sequence of bytes, and no floats."""

from __future__ import annotations

import hashlib

import pytest

from dgrctl.canonical import canonical_json, canonical_sha256
from dgrctl.errors import InputError


def test_members_are_sorted_and_nothing_is_padded() -> None:
    assert canonical_json({"b": [1, True, None], "a": "\u20ac\n"}) == '{"a":"\u20ac\\n","b":[1,true,null]}'.encode()
    assert canonical_sha256({}) == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize("value", [0.5, 1.0, {"a": [{"b": 1e-5}]}, 2**53, "\ud800", {1, 2}, {"a": object()}])
def test_refuses_what_two_writers_could_write_differently(value: object) -> None:
    with pytest.raises(InputError) as caught:
        canonical_json(value)
    assert caught.value.remedy


def test_says_where_a_float_is() -> None:
    with pytest.raises(InputError) as caught:
        canonical_json({"a": [1, {"b": 0.5}]})
    assert caught.value.where == "$.a[1].b"
