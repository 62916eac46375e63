"""The compatibility document: equal documents have one fingerprint, unequal ones name the first field that differs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from small_models import MODEL_ID, TinyModel
from tiny_recipes import write_recipe

from dgrctl.artifacts.provision import verified_model
from dgrctl.errors import InputError
from dgrctl.recipes.fingerprint import KEYS, expected, fingerprint, first_difference
from dgrctl.recipes.recipe import load_recipe

DOCUMENT = {key: f"value of {key}" for key in KEYS}


def test_fingerprint_is_what_the_documentation_says() -> None:
    canonical = json.dumps(DOCUMENT, sort_keys=True, separators=(",", ":"))
    assert fingerprint(DOCUMENT) == hashlib.sha256(canonical.encode()).hexdigest()
    assert fingerprint(dict(reversed(DOCUMENT.items()))) == fingerprint(DOCUMENT)


@pytest.mark.parametrize("key", KEYS)
def test_every_field_counts(key: str) -> None:
    changed = {**DOCUMENT, key: "another value"}
    assert fingerprint(changed) != fingerprint(DOCUMENT)
    assert first_difference(DOCUMENT, changed) == first_difference(changed, DOCUMENT) == key


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_or_empty_field_has_no_fingerprint(key: str) -> None:
    less = {name: value for name, value in DOCUMENT.items() if name != key}
    assert first_difference(DOCUMENT, less) == key
    for document in (less, {**DOCUMENT, key: ""}):
        with pytest.raises(InputError, match=f"{key} is missing"):
            fingerprint(document)


def test_an_unknown_field_counts_too() -> None:
    more = {**DOCUMENT, "engine.colour": "red"}
    assert first_difference(DOCUMENT, more) == "engine.colour"
    with pytest.raises(InputError, match=r"engine\.colour is unknown"):
        fingerprint(more)


def test_the_first_difference_is_named() -> None:
    changed = {**DOCUMENT, KEYS[-1]: "x", KEYS[3]: "x", "a": "x"}
    assert first_difference(DOCUMENT, changed) == KEYS[3]


def test_equal_documents_do_not_differ() -> None:
    assert first_difference(DOCUMENT, dict(DOCUMENT)) is None


def test_what_a_recipe_expects_of_every_stage(tiny: TinyModel, tmp_path: Path) -> None:
    model = verified_model(tiny.layout, MODEL_ID)
    wanted = expected(load_recipe(write_recipe(tmp_path)), model)
    assert wanted.keys() <= set(KEYS)
    assert wanted["model.sha256"] == model.set_digest
    assert (wanted["boundary.wire"], wanted["execution.context"]) == ("f32", "128")
    off = expected(load_recipe(write_recipe(tmp_path, ("flash_attention = true", "flash_attention = false"))), model)
    assert first_difference(wanted, off) == "execution.flash_attention"
