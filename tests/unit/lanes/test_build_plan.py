"""Plans: whatever can change a program changes its digests; where the checkout lies does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dgrctl.errors import StorageError
from dgrctl.lanes.isa import level
from dgrctl.lanes.plan import Plan, Sources, own_sources_digest, plan
from dgrctl.lanes.toolchain import BUILD, Found, Toolchain
from dgrctl.layout import Layout

SOURCES = Sources(pin="0c" * 20, upstream_tree="0d" * 20, patched_tree="0e" * 20, stack_digest="ab" * 32, own="cd" * 32)
TOOLS = Toolchain(
    {
        requirement.name: Found(requirement, "1.2.3", None if requirement.library else Path("/usr/bin") / requirement.name)
        for requirement in BUILD
    }
)
V3 = level("x86-64-v3", "x86_64")


def _plan(role: str = "worker", *, sources: Sources = SOURCES, tools: Toolchain = TOOLS, isa: str = V3.name) -> Plan:
    return plan(Layout(Path("/checkout")), role, lane="cpu", isa=level(isa, "x86_64"), sources=sources, tools=tools)


def _tools(name: str, **change: Any) -> Toolchain:
    return Toolchain({**TOOLS.found, name: dataclasses.replace(TOOLS.found[name], **change)})


def test_the_roles_are_built_from_different_trees_by_the_same_backend_options() -> None:
    worker, reference = _plan("worker"), _plan("reference")
    assert worker.source == Path("/checkout/.dgr/workspace/llama.cpp")
    assert reference.source == Path("/checkout/.dgr/upstream/llama.cpp")
    assert worker.folder != reference.folder
    assert reference.options["DGR_STACK"] == "none"
    differing = {name for name in worker.options if worker.options[name] != reference.options[name]}
    assert differing == {"DGR_ROLE", "DGR_STACK", "DGR_TESTS"}


def test_the_checkouts_place_is_not_part_of_it() -> None:
    here = _plan()
    there = plan(Layout(Path("/elsewhere")), "worker", lane="cpu", isa=V3, sources=SOURCES, tools=TOOLS)
    assert (here.configuration, here.inputs, here.folder.name) == (there.configuration, there.inputs, there.folder.name)


@pytest.mark.parametrize(
    "other",
    [
        _plan("reference"),
        _plan(isa="x86-64-v2"),
        _plan(sources=dataclasses.replace(SOURCES, pin="00" * 20)),
        _plan(sources=dataclasses.replace(SOURCES, patched_tree="00" * 20)),
        _plan(sources=dataclasses.replace(SOURCES, stack_digest="00" * 32)),
        _plan(tools=_tools("c++", version="13.0")),
        _plan(tools=_tools("cc", path=Path("/opt/cc"))),
        _plan(tools=_tools("cmake", version="4.0")),
        _plan(tools=_tools("grpc++", version="2.0")),
    ],
)
def test_what_changes_the_folder(other: Plan) -> None:
    assert other.configuration != _plan().configuration
    assert other.folder != _plan().folder


def test_our_own_sources_change_the_inputs_alone() -> None:
    other = _plan(sources=dataclasses.replace(SOURCES, own="00" * 32))
    assert other.folder == _plan().folder
    assert other.inputs != _plan().inputs


@pytest.mark.parametrize("name", ["git", "ninja", "ccache"])
def test_tools_that_cannot_change_a_program_do_not_count(name: str) -> None:
    assert _plan(tools=_tools(name, version="99")).configuration == _plan().configuration


def test_the_reference_does_not_depend_on_the_patches() -> None:
    other = dataclasses.replace(SOURCES, patched_tree="00" * 20, stack_digest="00" * 32)
    assert _plan("reference", sources=other).inputs == _plan("reference").inputs


@pytest.fixture
def checkout(tmp_path: Path) -> Layout:
    for name in ("worker/main.cpp", "worker/engine/a.h", "proto/dgr/v1/common.proto"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return Layout(tmp_path)


def test_own_sources_are_names_and_contents(checkout: Layout) -> None:
    before = own_sources_digest(checkout)
    assert own_sources_digest(checkout) == before
    path = checkout.root / "worker/engine/a.h"
    path.rename(path.with_name("b.h"))
    renamed = own_sources_digest(checkout)
    path.with_name("b.h").rename(path)
    path.write_text("changed")
    changed = own_sources_digest(checkout)
    path.write_text("worker/engine/a.h")
    (checkout.root / "proto" / "new.proto").write_text("")
    added = own_sources_digest(checkout)
    assert len({before, renamed, changed, added}) == 4


def test_a_source_that_cannot_be_read_is_named(checkout: Layout) -> None:
    (checkout.root / "worker" / "gone.cpp").symlink_to("nowhere")
    with pytest.raises(StorageError) as refused:
        own_sources_digest(checkout)
    assert str(refused.value.where).endswith("gone.cpp")
