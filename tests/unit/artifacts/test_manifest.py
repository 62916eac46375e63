"""Model manifests: the shipped ones load, each kind of bad one is refused with file, field and remedy."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from small_models import MODEL_ID, TinyModel, make_tiny_model

from dgrctl.artifacts.manifest import load_model_manifest, model_ids
from dgrctl.errors import InputError
from dgrctl.layout import Layout

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("model_id", model_ids(Layout(ROOT)))
def test_shipped_manifests_load(model_id: str) -> None:
    manifest = load_model_manifest(Layout(ROOT), model_id)
    assert manifest.size > 0


def test_set_digest_is_what_the_documentation_says(tiny: TinyModel) -> None:
    manifest = load_model_manifest(tiny.layout, MODEL_ID)
    (part,) = manifest.parts
    canonical = json.dumps([{"name": part.name, "sha256": part.sha256, "size": part.size}], separators=(",", ":"))
    assert manifest.set_digest == hashlib.sha256(canonical.encode()).hexdigest()


def edit(old: str, new: str) -> Callable[[str], str]:
    def apply(text: str) -> str:
        assert re.search(old, text), f"{old} is not in the manifest"
        return re.sub(old, new, text, count=1)

    return apply


BAD = {
    "not TOML": (edit("schema = 1", "schema = "), ":1", "Invalid value"),
    "a field twice": (edit("layer_count = 4", "layer_count = 4\nlayer_count = 5"), "layer_count", "holds the field twice"),
    "a missing field": (edit('title = ".*"\n', ""), "title", "missing required field"),
    "a missing nested field": (edit("size = .*\n", ""), "parts[0].size", "missing required field"),
    "an unknown field": (edit("schema = 1", 'schema = 1\ncolour = "red"'), "colour", "unknown field"),
    "another schema": (edit("schema = 1", "schema = 2"), "schema", "Invalid enum value 2"),
    "a wrong type": (edit("layer_count = 4", 'layer_count = "4"'), "layer_count", "Expected `int`, got `str`"),
    "a truth as a number": (edit("layer_count = 4", "layer_count = true"), "layer_count", "Expected `int`, got `bool`"),
    "no layers": (edit("layer_count = 4", "layer_count = 0"), "layer_count", ">= 1"),
    "a number of 5,000 digits": (edit("layer_count = 4", "layer_count = " + "9" * 5000), "", "cannot be read"),
    "arrays nested 5,000 deep": (edit("layer_count = 4", "layer_count = " + "[" * 5000), "", "cannot be read"),
    "a short hash": (edit('\nsha256 = "..', '\nsha256 = "'), "parts[0].sha256", "matching regex"),
    "a hash with a line feed": (edit('\nsha256 = "(.{64})"', '\nsha256 = "\\1\\\\n"'), "parts[0].sha256", "matching regex"),
    "an upper-case hash": (edit('\nsha256 = "(.{64})"', '\nsha256 = "' + "A" * 64 + '"'), "parts[0].sha256", "matching regex"),
    "a part outside its folder": (edit('name = "tiny.gguf"', 'name = "../tiny.gguf"'), "parts[0].name", "matching regex"),
    "a hidden part": (edit('name = "tiny.gguf"', 'name = ".tiny.gguf"'), "parts[0].name", "matching regex"),
    "a part that is not GGUF": (edit('name = "tiny.gguf"', 'name = "tiny.bin"'), "parts[0].name", "not named *.gguf"),
    "no parts": (edit(r"\[\[parts\]\](.|\n)*(?=\[\[sources)", "parts = []\n"), "parts", "length >= 1"),
    "another model's id": (edit('id = "tiny-f32"', 'id = "other"'), "id", "make the two equal"),
    "a source of an unknown kind": (edit("pypi-wheel", "carrier-pigeon"), "sources[0].kind", "Invalid value 'carrier-pigeon'"),
    "an option as a package": (edit('distribution = "', 'distribution = "--index-url='), "sources[0].distribution", "regex"),
    "a range as a version": (edit('version = "1.0"', 'version = "1.0,>0"'), "sources[0].version", "regex"),
    "a member of no part": (edit('part = "tiny.gguf"', 'part = "other.gguf"'), "sources", "which is no part"),
    "a part twice in one source": (
        edit(r"members = \[(.*)\]", r"members = [\1, \1]"),
        "sources",
        "is brought 2 times",
    ),
    "a source without members": (edit(r"members = \[.*\]", "members = []"), "sources[0].members", "length >= 1"),
}


@pytest.mark.parametrize("kind", BAD)
def test_refuses(kind: str, tiny: TinyModel) -> None:
    change, field, expected = BAD[kind]
    tiny.manifest.write_text(change(tiny.manifest.read_text()))
    with pytest.raises(InputError) as caught:
        load_model_manifest(tiny.layout, MODEL_ID)
    assert str(tiny.manifest) in (caught.value.where or "")
    assert (caught.value.where or "").endswith(field)
    assert expected in " ".join([caught.value.what, caught.value.remedy or ""])
    assert caught.value.remedy


def parts(*names: str) -> Callable[[str], str]:
    def apply(text: str) -> str:
        listed = "".join(f'[[parts]]\nname = "{name}"\nsize = 1\nsha256 = "{"0" * 64}"\n' for name in names)
        members = ", ".join(f'{{ part = "{name}", path = "x" }}' for name in dict.fromkeys(names))
        text = re.sub(r"\[\[parts\]\](.|\n)*(?=\[\[sources)", listed, text)
        return re.sub(r"members = \[.*\]", f"members = [{members}]", text)

    return apply


@pytest.mark.parametrize(
    ("names", "field", "expected"),
    [
        (("a.gguf", "a.gguf"), "parts[1].name", "two parts are called 'a.gguf'"),
        (("a.gguf", "A.gguf"), "parts[1].name", "two parts are called 'A.gguf'"),
        (("a.gguf", "b.gguf"), "parts[0].name", "part 1 of 2 is called 'a.gguf'"),
        (("a-00001-of-00003.gguf", "a-00002-of-00003.gguf"), "parts[0].name", "part 1 of 2"),
        (("a-00002-of-00002.gguf", "a-00001-of-00002.gguf"), "parts[0].name", "part 1 of 2"),
        (("a-00001-of-00002.gguf", "b-00002-of-00002.gguf"), "parts[1].name", "part 2 of 2"),
    ],
)
def test_refuses_parts_that_upstream_would_not_find(tiny: TinyModel, names: tuple[str, ...], field: str, expected: str) -> None:
    tiny.manifest.write_text(parts(*names)(tiny.manifest.read_text()))
    with pytest.raises(InputError, match=re.escape(expected)) as caught:
        load_model_manifest(tiny.layout, MODEL_ID)
    assert caught.value.where == f"{tiny.manifest}: {field}"


def test_takes_a_split_set(tiny: TinyModel) -> None:
    tiny.manifest.write_text(parts("a-00001-of-00002.gguf", "a-00002-of-00002.gguf")(tiny.manifest.read_text()))
    assert len(load_model_manifest(tiny.layout, MODEL_ID).parts) == 2


def test_a_part_that_no_source_brings(tiny: TinyModel) -> None:
    text = parts("a-00001-of-00002.gguf", "a-00002-of-00002.gguf")(tiny.manifest.read_text())
    tiny.manifest.write_text(text.replace(', { part = "a-00002-of-00002.gguf", path = "x" }', ""))
    with pytest.raises(InputError, match="no source brings") as caught:
        load_model_manifest(tiny.layout, MODEL_ID)
    assert caught.value.where == f"{tiny.manifest}: parts[1]"


PIECES = {
    "a gap": (r"offset = (\d+), size = \d+", r"offset = \1, size = 1", "the bytes before it end at"),
    "no beginning": ("offset = 0,", "offset = 1,", "one begins at byte 1"),
    "no end": (r"(?s)(.*)size = \d+", r"\g<1>size = 1", "and the part has"),
    "whole and in pieces": (r"(?s)(.*), piece = \{.*?\}", r"\g<1>", "is brought 2 times"),
    "a short hash": (r'(?s)(.*sha256 = ".{60}).{4}', r"\g<1>", "matching regex"),
}


@pytest.mark.parametrize("case", PIECES)
def test_refuses_pieces_that_do_not_make_a_part(tmp_path: Path, case: str) -> None:
    tiny = make_tiny_model(tmp_path, pieces=3)
    assert len(load_model_manifest(tiny.layout, MODEL_ID).pieces_of(tiny.part_name)) == 3
    old, new, expected = PIECES[case]
    tiny.manifest.write_text(edit(old, new)(tiny.manifest.read_text()))
    with pytest.raises(InputError) as caught:
        load_model_manifest(tiny.layout, MODEL_ID)
    assert expected in caught.value.what
    assert "sources" in (caught.value.where or "")


@pytest.mark.parametrize("name", ["nope", "../../etc/passwd", "", "tiny-f32\n", "/etc/passwd", "TINY-F32"])
def test_an_unknown_model_lists_the_known_ones(tiny: TinyModel, name: str) -> None:
    with pytest.raises(InputError, match="unknown model") as caught:
        load_model_manifest(tiny.layout, name)
    assert MODEL_ID in (caught.value.remedy or "")


def test_an_oversized_manifest_is_not_read(tiny: TinyModel) -> None:
    with tiny.manifest.open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="at most 16777216 are read"):
        load_model_manifest(tiny.layout, MODEL_ID)
