"""A model file that changes under running workers: no answer goes on with bytes that nobody verified."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dgr.v1 import common_pb2

from dgrctl.artifacts.local import LocalModel
from dgrctl.errors import DgrError, StageError
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute

if TYPE_CHECKING:
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe

PROMPT = common_pb2.Prompt(text="Name three rivers in Europe.", chat_template=True)
CHANGED = r"the model file {} was changed while this process had it loaded"


@pytest.fixture
def copied(verified_model: LocalModel, tmp_path: Path) -> LocalModel:
    """The real model in files of this test's own."""
    parts = tuple(Path(shutil.copy(part, tmp_path)) for part in verified_model.parts)
    return dataclasses.replace(verified_model, parts=parts)


@pytest.fixture
def copied_route(
    layout: Layout, recipe: Recipe, copied: LocalModel, verified_build: BuildRecord
) -> Iterator[tuple[LocalRoute, Path]]:
    """Two stages that serve it, and the file."""
    with LocalRoute(layout, recipe, copied, verified_build, [LayerRange(0, 15), LayerRange(15, 30)]) as route:
        yield route, copied.first_part


def overwrite(path: Path) -> None:
    """Changes bytes in place; the size stays."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, b"\x55" * 4096, path.stat().st_size // 2)
    finally:
        os.close(descriptor)


def give_back_the_times(path: Path) -> None:
    """As an archiver does that restores a file."""
    before = path.stat()
    overwrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [overwrite, give_back_the_times])
def test_an_answer_under_way_ends_in_an_error(copied_route: tuple[LocalRoute, Path], change: Callable[[Path], None]) -> None:
    route, file = copied_route
    responses = route.generate(PROMPT, max_tokens=64)
    for response in responses:
        if response.HasField("token"):
            break
    change(file)
    with pytest.raises(StageError, match=CHANGED.format(file)) as caught:
        list(responses)
    assert "dgrctl model verify" in (caught.value.remedy or "")
    # And no session after it is served from such a file.
    with pytest.raises(StageError, match=CHANGED.format(file)):
        list(route.generate(PROMPT, max_tokens=1))


def test_the_reference_notices_too(layout: Layout, recipe: Recipe, copied: LocalModel, verified_build: BuildRecord) -> None:
    with LocalReference(layout, recipe, copied, verified_build) as reference:
        list(reference.client.generate(PROMPT, max_tokens=1))
        overwrite(copied.first_part)
        with pytest.raises(DgrError, match="was changed while this process had it loaded"):
            list(reference.client.generate(PROMPT, max_tokens=1))


def test_a_file_that_shrank_is_named(copied_route: tuple[LocalRoute, Path]) -> None:
    route, file = copied_route
    os.truncate(file, 4096)
    with pytest.raises(StageError, match=r"SIGBUS.*: a file that it reads its weights from shrank or cannot be read") as caught:
        list(route.generate(PROMPT, max_tokens=1))
    assert f"SIGBUS: the model file {file} shrank or cannot be read" in (caught.value.detail or "")
    assert "dgrctl model verify" in (caught.value.remedy or "")
