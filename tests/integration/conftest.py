"""Fixtures of tests that compare a route with the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from certify_checkouts import Checkout
from dgr.v1 import common_pb2
from token_parity import Rig

from dgrctl.layout import Layout
from dgrctl.runtime.reference import LocalReference

if TYPE_CHECKING:
    from pathlib import Path

    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe


@pytest.fixture(scope="session")
def reference(
    layout: Layout, verified_build: BuildRecord, verified_model: LocalModel, recipe: Recipe
) -> Iterator[LocalReference]:
    """The whole model in the unpatched upstream, for the whole test session."""
    with LocalReference(layout, recipe, verified_model, verified_build) as running:
        yield running


@pytest.fixture(scope="session")
def greedy(reference: LocalReference) -> Callable[..., tuple[str, list[int]]]:
    """What the whole model answers: its text and token ids, remembered by request."""
    known: dict[tuple[str, int, bool], tuple[str, list[int]]] = {}

    def answer(text: str, max_tokens: int, *, chat_template: bool = True) -> tuple[str, list[int]]:
        key = (text, max_tokens, chat_template)
        if key not in known:
            prompt = common_pb2.Prompt(text=text, chat_template=chat_template)
            responses = reference.client.generate(prompt, max_tokens=max_tokens)
            tokens = [response.token for response in responses if response.HasField("token")]
            pieces = b"".join(token.piece for token in tokens)
            known[key] = pieces.decode("utf-8", "replace"), [token.id for token in tokens]
        return known[key]

    return answer


@pytest.fixture(scope="session")
def fixture_rig(layout: Layout, verified_build: BuildRecord, recipe: Recipe) -> Rig:
    """Routes and references of fixture models, on one thread and with one session each: they are too small for more."""
    return Rig(layout, verified_build, recipe).executing(threads=1, sessions=1)


@pytest.fixture
def checkout(layout: Layout, verified_build: object, verified_model: object, tmp_path: Path) -> Checkout:
    """A checkout to certify in."""
    del verified_build, verified_model  # only that they are there
    return Checkout(layout, tmp_path / "checkout")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[object], None]:
    """Prints what a test counted, beside its verdict."""

    def write(counted: object) -> None:
        with capsys.disabled():
            print(f"\n  {counted}", end=" ")

    return write
