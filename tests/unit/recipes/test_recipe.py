"""Recipes by themselves: the shipped ones load, every kind of bad one is refused with file, field and remedy."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from small_models import make_checkout
from tiny_recipes import NAME, write_recipe

from dgrctl.errors import InputError
from dgrctl.recipes.recipe import find_recipe, load_recipe

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
STAGES = "stages = 2"


def ranges(text: str, *, stages: str = "") -> tuple[str, str]:
    return (STAGES, f"{stages}\nranges = {text}")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_recipes_load(path: Path) -> None:
    assert load_recipe(path).name == path.stem


def test_a_good_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path))
    assert (recipe.placement.stages, recipe.placement.ranges) == (2, None)
    assert recipe.execution.kv_type_k == "f16"


def test_ranges_and_a_count_that_agree(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, ranges("[[0, 3], [3, 4]]", stages=STAGES)))
    assert recipe.placement.ranges == ((0, 3), (3, 4))


BAD = {
    # What is written.
    "not TOML": (("schema = 1", "schema"), ":1", "not valid TOML"),
    "a field twice": (("threads = 2", "threads = 2\nthreads = 3"), ":14: threads", "holds the field twice"),
    "a table twice": (("[execution]", "[boundary]"), ":12", "not valid TOML"),
    "a missing field": (("threads = 2\n", ""), "execution.threads", "missing required field"),
    "a missing table": (('[boundary]\nwire = "f32"\n', ""), "boundary", "missing required field"),
    "an unknown field": (("threads = 2", "threads = 2\nthread = 3"), "execution.thread", "unknown field"),
    "an unknown table": (("[boundary]", "[network]\n[boundary]"), "network", "unknown field"),
    "another schema": (("schema = 1", "schema = 2"), "schema", "Invalid enum value 2"),
    "text for a number": (("threads = 2", 'threads = "2"'), "execution.threads", "Expected `int`, got `str`"),
    "a fraction for a number": (("threads = 2", "threads = 2.5"), "execution.threads", "Expected `int`, got `float`"),
    "a truth for a number": (("threads = 2", "threads = true"), "execution.threads", "Expected `int`, got `bool`"),
    "a number for a truth": (("= true", "= 1"), "execution.flash_attention", "Expected `bool`, got `int`"),
    "a list for a table": (("[placement]\nstages = 2", "placement = [2]"), "placement", "Expected `object`, got `array`"),
    "a number of 5,000 digits": (("threads = 2", "threads = " + "9" * 5000), "", "cannot be read"),
    # Names.
    "another name than its file's": ((f'name = "{NAME}"', 'name = "other"'), "name", "make the two equal"),
    "a name with a slash": ((f'name = "{NAME}"', 'name = "a/b"'), "name", "matching regex"),
    "a model outside the manifests": (("tiny-f32", "../tiny-f32"), "model", "matching regex"),
    "an unknown lane": (('lane = "cpu"', 'lane = "npu"'), "lane", "name one of cpu, cuda, rocm, vulkan, metal"),
    "a lane in capitals": (('lane = "cpu"', 'lane = "CPU"'), "lane", "name one of cpu"),
    # Boundary.
    "f16 on the wire": (('wire = "f32"', 'wire = "f16"'), "boundary.wire", "corrupt the routing of experts"),
    "an unknown wire": (('wire = "f32"', 'wire = "int8"'), "boundary.wire", "name one of f32, bf16"),
    # Placement.
    "no placement": ((STAGES, ""), "placement", "neither stages nor ranges"),
    "no stages": ((STAGES, "stages = 0"), "placement.stages", ">= 1"),
    "fewer than no stages": ((STAGES, "stages = -1"), "placement.stages", ">= 1"),
    "no ranges": (ranges("[]"), "placement.ranges", "there is no range"),
    "an empty range": (ranges("[[0, 2], [2, 2], [2, 4]]"), "placement.ranges[1]", "holds no layer"),
    "a reversed range": (ranges("[[0, 2], [4, 2]]"), "placement.ranges[1]", "holds no layer"),
    "a range of three numbers": (ranges("[[0, 2, 4]]"), "placement.ranges[0]", "length 2"),
    "a range of one number": (ranges("[[0]]"), "placement.ranges[0]", "length 2"),
    "a negative layer": (ranges("[[-1, 4]]"), "placement.ranges[0][0]", ">= 0"),
    "a layer beyond any model": (ranges("[[0, 99999999999999999999]]"), "placement.ranges[0][1]", ""),
    "layers as text": (ranges('[["0", "4"]]'), "placement.ranges[0][0]", "Expected `int`"),
    "a start after layer 0": (ranges("[[1, 2], [2, 4]]"), "placement.ranges[0]", "begin at layer 0"),
    "a gap": (ranges("[[0, 1], [2, 4]]"), "placement.ranges[1]", "the layers [1, 2) belong to no stage"),
    "an overlap": (ranges("[[0, 3], [2, 4]]"), "placement.ranges[1]", "belongs to the stage before as well"),
    "ranges out of order": (ranges("[[2, 4], [0, 2]]"), "placement.ranges[0]", "begin at layer 0"),
    "ranges and another count": (ranges("[[0, 2], [2, 4]]", stages="stages = 3"), "placement.stages", "make the two agree"),
    # Execution.
    "no threads": (("threads = 2", "threads = 0"), "execution.threads", ">= 1"),
    "too many threads": (("threads = 2", "threads = 513"), "execution.threads", "<= 512"),
    "no context": (("context = 128", "context = 0"), "execution.context", ">= 1"),
    "too long a context": (("context = 128", "context = 16777217"), "execution.context", "<= 16777216"),
    "too many positions": (
        ("context = 128\nsessions = 4", "context = 16777216\nsessions = 256"),
        "execution.context",
        "at 1,073,741,824 or less",
    ),
    "no sessions": (("sessions = 4", "sessions = 0"), "execution.sessions", ">= 1"),
    "too many sessions": (("sessions = 4", "sessions = 257"), "execution.sessions", "<= 256"),
    "no ubatch": (("ubatch = 32", "ubatch = 0"), "execution.ubatch", ">= 1"),
    "a ubatch beyond the context": (("ubatch = 32", "ubatch = 129"), "execution.ubatch", "make it at most 128"),
    "an unknown cache type": (('kv_type_k = "f16"', 'kv_type_k = "q4_0"'), "execution.kv_type_k", "name one of f16, f32, q8_0"),
    "no prefill window": (("prefill_window = 1", "prefill_window = 0"), "execution.prefill_window", ">= 1"),
}


def refuse(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    assert (caught.value.where or "").startswith(str(path))
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("kind", BAD)
def test_refuses(kind: str, tmp_path: Path) -> None:
    edit, field, expected = BAD[kind]
    path = write_recipe(tmp_path, edit)
    error = refuse(path)
    assert (error.where or "").endswith(field)
    assert expected in f"{error.what} {error.remedy}"


def test_a_quantised_v_cache_needs_flash_attention(tmp_path: Path) -> None:
    quantised = ('kv_type_v = "f16"', 'kv_type_v = "q8_0"')
    assert load_recipe(write_recipe(tmp_path, quantised)).execution.kv_type_v == "q8_0"
    error = refuse(write_recipe(tmp_path, quantised, ("flash_attention = true", "flash_attention = false")))
    assert (error.where or "").endswith("execution.kv_type_v")


def test_refuses_what_cannot_be_read(tmp_path: Path) -> None:
    assert refuse(tmp_path / "nothing.toml").what == "no such recipe"
    (tmp_path / "folder.toml").mkdir()
    assert "regular file" in refuse(tmp_path / "folder.toml").what
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refuse(tmp_path / "bytes.toml").what


def test_digest_is_over_the_fields_and_not_over_the_text(tmp_path: Path) -> None:
    plain = load_recipe(write_recipe(tmp_path))
    commented = load_recipe(write_recipe(tmp_path, ("schema = 1", "# a comment\nschema   =   1")))
    assert plain.digest() == commented.digest()
    for edit in (("threads = 2", "threads = 1"), ('wire = "f32"', 'wire = "bf16"'), (STAGES, "stages = 3")):
        assert load_recipe(write_recipe(tmp_path, edit)).digest() != plain.digest()


def test_digest_is_what_the_documentation_says(tmp_path: Path) -> None:
    document = {
        "schema": 1,
        "name": NAME,
        "model": "tiny-f32",
        "lane": "cpu",
        "placement": {"ranges": [[0, 4]]},
        "boundary": {"wire": "f32"},
        "execution": {
            "threads": 2,
            "context": 128,
            "sessions": 4,
            "ubatch": 32,
            "flash_attention": True,
            "kv_type_k": "f16",
            "kv_type_v": "f16",
            "prefill_window": 1,
        },
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    recipe = load_recipe(write_recipe(tmp_path, ranges("[[0, 4]]")))
    assert recipe.digest() == hashlib.sha256(canonical.encode()).hexdigest()


def test_a_recipe_is_found_by_name_or_path(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path / "checkout")
    path = write_recipe(layout.recipes)
    assert find_recipe(layout, NAME) == path
    assert find_recipe(layout, str(path)) == path
    assert find_recipe(layout, "somewhere/else.toml") == Path("somewhere/else.toml")
    with pytest.raises(InputError, match="unknown recipe 'nope'") as caught:
        find_recipe(layout, "nope")
    assert NAME in (caught.value.remedy or "")
