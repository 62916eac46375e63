"""Fixtures of tests that compare a route with the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from dgr.v1 import common_pb2

from dgrctl.layout import Layout
from dgrctl.runtime.reference import LocalReference

if TYPE_CHECKING:
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
