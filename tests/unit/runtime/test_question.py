"""Prompts are refused before anything starts, each with its reason."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dgrctl.errors import InputError
from dgrctl.runtime.question import MAX_PROMPT_BYTES, ask


def test_text_becomes_a_prompt_with_or_without_the_chat_template() -> None:
    question = ask("Grüße", None, max_tokens=5, raw=False)
    assert (question.prompt.text, question.prompt.chat_template, question.max_tokens) == ("Grüße", True, 5)
    assert not ask("x", None, max_tokens=1, raw=True).prompt.chat_template


def test_a_file_and_standard_input_are_taken_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes("eins\r\nzwei 🦙\n".encode())
    assert ask(None, str(file), max_tokens=1, raw=True).prompt.text == "eins\r\nzwei 🦙\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"von vorn")))
    assert ask(None, "-", max_tokens=1, raw=True).prompt.text == "von vorn"


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_a_number_of_tokens_that_cannot_be(count: int) -> None:
    with pytest.raises(InputError) as caught:
        ask("x", None, max_tokens=count, raw=True)
    assert caught.value.where == "--max-tokens"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"caf\xe9", "not UTF-8"),
        (b"\xff\xfeh\x00i\x00", "not UTF-8"),
        (b"\xed\xa0\x80", "not UTF-8"),
        (b"x" * (MAX_PROMPT_BYTES + 1), "longer than"),
    ],
)
def test_a_file_that_is_no_prompt(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        ask(None, str(file), max_tokens=1, raw=True)
    assert caught.value.where == str(file)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", None, "caf\udce9", "\ud800"])
def test_an_argument_that_is_no_prompt(text: str | None) -> None:
    with pytest.raises(InputError) as caught:
        ask(text, None, max_tokens=1, raw=True)
    assert caught.value.where == "--prompt"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("missing", ".", "nul\0character"):
        with pytest.raises(InputError, match="cannot be read"):
            ask(None, str(tmp_path / name), max_tokens=1, raw=True)
