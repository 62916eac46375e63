"""dgrctl.certify.prompts, and the prompt sets of this checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dgrctl.certify.prompts import load_prompt_set, require_crossing
from dgrctl.errors import InputError, IntegrityError
from dgrctl.files import sha256_file

CERTS = Path(__file__).resolve().parents[3] / "certs"
GOOD = """\
schema = 1
name = "two"
[[prompts]]
id = "a"
language = "en"
text = "One."
[[prompts]]
id = "b"
language = "de"
text = "Zwei."
"""


def written(folder: Path, text: str, name: str = "two.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_set_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert [prompt.id for prompt in load_prompt_set(path, sha256=sha256_file(path)).prompts] == ["a", "b"]


@pytest.mark.parametrize("path", sorted((CERTS / "prompts").glob("*.toml")), ids=lambda path: path.stem)
def test_every_set_of_this_checkout_is_good(path: Path) -> None:
    assert len({prompt.language for prompt in load_prompt_set(path).prompts}) > 1


def test_a_changed_byte_is_another_set_than_the_lock_names(tmp_path: Path) -> None:
    sha256 = sha256_file(written(tmp_path, GOOD))
    path = written(tmp_path, GOOD.replace("Zwei.", "Zwei!"))
    with pytest.raises(IntegrityError, match="the lock names") as caught:
        load_prompt_set(path, sha256=sha256)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1", "", "schema"),
        ('name = "two"', 'name = "three"', "name"),
        ('name = "two"', 'name = "../two"', "name"),
        ('id = "b"', 'id = "a"', r"prompts\[1\]\.id"),
        ('id = "b"', 'id = "B b"', r"id"),
        ('text = "One."', 'text = ""', "text"),
        ('text = "One."', "text = 1", "text"),
        ('text = "One."', "", "text"),
        ('language = "de"', 'language = ""', "language"),
        ('language = "de"', 'language = "de"\ncolour = "red"', "colour"),
        ('language = "de"', 'language = "de"\nlanguage = "de"', r"toml:10"),
        ('text = "One."', 'text = "One.', r"toml:6"),
        (GOOD, 'schema = 1\nname = "two"\nprompts = []\n', "prompts"),
        (GOOD, "", "schema"),
    ],
)
def test_a_malformed_set_is_refused_with_file_and_field(tmp_path: Path, before: str, after: str, complaint: str) -> None:
    assert before in GOOD
    path = written(tmp_path, GOOD.replace(before, after))
    with pytest.raises(InputError) as caught:
        load_prompt_set(path)
    said = f"{caught.value.where} {caught.value.what}"
    assert str(path) in said
    assert re.search(complaint, said)
    assert caught.value.remedy


def test_a_missing_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such prompt set"):
        load_prompt_set(tmp_path / "two.toml")


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_bytes(GOOD.encode().replace(b"One.", b"\xff\xfe"))
    with pytest.raises(InputError, match="UTF-8"):
        load_prompt_set(path)


@pytest.mark.parametrize(("a", "b", "fits"), [(3, 5, True), (4, 5, False), (3, 4, False), (3, 3, False), (5, 9, False)])
def test_a_set_must_lie_on_both_sides_of_one_ubatch(tmp_path: Path, a: int, b: int, fits: bool) -> None:
    prompts = load_prompt_set(written(tmp_path, GOOD))
    if fits:
        require_crossing(prompts, {"a": a, "b": b}, ubatch=4)
        return
    with pytest.raises(InputError, match="than one ubatch of 4 tokens"):
        require_crossing(prompts, {"a": a, "b": b}, ubatch=4)
