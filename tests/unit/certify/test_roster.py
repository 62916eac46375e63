"""From the outcomes of runs to the roster: what each outcome is called, and that nothing passes that was not compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgrctl.certify.architectures.classify import EXPLANATIONS, ModelOutcome, classify
from dgrctl.certify.architectures.lattice import RouteOutcome, routes
from dgrctl.certify.architectures.run import page_path
from dgrctl.certify.architectures.synthesis import architecture_names, synthesise
from dgrctl.certify.bits import Tally
from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.recipes.architectures import Architecture, Roster, load_roster, roster_path, save_roster
from dgrctl.report.pages import architectures_page
from dgrctl.upstream.series import load_lock


def tally(*, differing: int = 0) -> Tally:
    """Ten logits, of which some differ."""
    reference = np.arange(10, dtype="<f4").view("<u4").reshape(1, 10)
    candidate = reference.copy()
    candidate[0, :differing] ^= 1
    result = Tally()
    result.add(candidate, reference)
    return result


def model(*outcomes: RouteOutcome) -> list[ModelOutcome]:
    return [ModelOutcome("dense", outcomes)]


SAME = RouteOutcome((1,), tally())


def test_certified_only_if_every_route_of_every_model_is_identical() -> None:
    row = classify("x", [*model(SAME, RouteOutcome((2,), tally()), RouteOutcome((1, 2), tally())), *model(SAME)])
    assert (row.status, row.cuts, row.logits, row.reason) == ("certified", 3, 40, "")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (RouteOutcome((2,), tally(differing=3)), "cut at layer 2: 3 of 10 logits differ"),
        (RouteOutcome((1, 2), tally(differing=1)), "one layer a stage: 1 of 10 logits differ"),
        (RouteOutcome((2,), problem="the stage [2, 4) was killed by SIGSEGV"), "cut at layer 2: the stage [2, 4) was killed"),
        (RouteOutcome((2,)), "cut at layer 2: 0 of 0 logits differ"),
    ],
)
def test_one_route_that_differs_dies_or_compares_nothing_is_enough(outcome: RouteOutcome, reason: str) -> None:
    row = classify("x", [*model(SAME), *model(SAME, outcome)])
    assert row.status == "unsupported"
    assert row.reason.startswith(reason)


def test_a_cut_that_the_engine_refuses_by_name_restricts() -> None:
    refused = RouteOutcome((2,), problem="layer 2 shares the indexer of layer 1", refused=True)
    row = classify("x", model(SAME, refused, RouteOutcome((1, 2), problem=refused.problem, refused=True)))
    assert (row.status, row.cuts) == ("restricted", 1)
    assert row.reason == "forbidden at layer 2 of the synthesised model: layer 2 shares the indexer of layer 1"
    assert classify("x", model(refused)).status == "unsupported"


def test_without_a_model_or_a_cut_nothing_is_certified() -> None:
    assert classify("x", [], "it died").reason == "it died"
    assert classify("x", []).status == "unsupported"
    assert classify("x", model()).status == "unsupported"
    assert classify("x", [*model(SAME), ModelOutcome("moe", problem="it died")]).reason == "it died"
    assert classify("x", [ModelOutcome("dense", problem="keeps no state", decoder=False)]).status == "not a decoder"


def test_every_interior_cut_and_the_chain_of_single_layers_is_a_route() -> None:
    assert routes(1) == []
    assert routes(2) == [(1,)]
    assert routes(4) == [(1,), (2,), (3,), (1, 2, 3)]


def test_a_generator_that_dies_is_told_and_not_asked_twice(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    dying = program(tmp_path / "dying", "touch half.gguf; echo '/far/off/model.cpp:1: GGML_ASSERT(x) failed'; kill -ABRT $$")
    for _ in range(2):
        made = synthesise(layout, [dying], "llama")
        assert made.models == ()
        assert made.problem == "upstream's generator ended with signal 6: model.cpp:1: GGML_ASSERT(x) failed"
    assert (tmp_path / "dying.runs").read_text() == "x\n"


def test_the_next_generator_serves_where_the_first_cannot(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first = program(tmp_path / "first", "echo '0.00.005.693 E error: wrong array length'; exit 1")
    second = program(tmp_path / "second", "touch llama-dense.gguf")
    assert synthesise(layout, [first], "llama").problem.endswith("with code 1: error: wrong array length")
    assert [path.name for path in synthesise(layout, [first, second], "llama").models] == ["llama-dense.gguf"]
    nothing = program(tmp_path / "nothing", "true")
    assert synthesise(layout, [nothing], "llama").problem == "upstream's generator makes no model of it"


def program(path: Path, commands: str) -> Path:
    """A generator that runs ``commands`` where its models go, and keeps count."""
    path.write_text(f'#!/bin/sh\necho x >> "$0.runs"\ncd "$8" || exit 9\n{commands}\n')
    path.chmod(0o755)
    return path


def test_names_come_from_upstreams_own_table(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    table = layout.pristine / "src" / "llama-arch.cpp"
    table.parent.mkdir(parents=True)
    table.write_text(
        'LLM_ARCH_NAMES = {\n { LLM_ARCH_B, "b" },\n { LLM_ARCH_A, "a" },\n { LLM_ARCH_UNKNOWN, "(unknown)" },\n};\n'
    )
    assert architecture_names(layout) == ["a", "b"]
    table.write_text("moved elsewhere")
    with pytest.raises(InputError, match="not where it was"):
        architecture_names(layout)


def test_the_roster_survives_its_file(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    roster_path(layout).parent.mkdir(parents=True)
    rows = (Architecture(name="a", status="certified", cuts=3, logits=9, reason=""),)
    roster = Roster(schema=1, pin="1" * 40, stack_digest="2" * 64, architectures=rows)
    save_roster(layout, roster)
    assert load_roster(layout) == roster
    assert roster.splittable == ["a"]
    assert roster.refusal("a") is None
    assert roster.refusal("b") == "the architecture 'b' is not on the roster"


def test_the_checkouts_roster_is_of_its_stack_and_its_page_is_current() -> None:
    layout = Layout.find()
    roster, lock = load_roster(layout), load_lock(layout)
    assert (roster.pin, roster.stack_digest) == (lock.pin, lock.stack_digest), "dgrctl arch certify makes the roster anew"
    assert page_path(layout).read_text(encoding="utf-8") == architectures_page(roster)


def test_every_explanation_is_of_an_architecture_that_is_not_certified() -> None:
    statuses = {row.name: row.status for row in load_roster(Layout.find()).architectures}
    assert [name for name in EXPLANATIONS if statuses.get(name, "certified") == "certified"] == []
