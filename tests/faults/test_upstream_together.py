"""Two commands at once on one checkout: one waits, says for whom, and finds nothing left to do."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from held_commands import holding, start, waits_for
from upstream_checkout import Checkout, Stage

from dgrctl.statelock import state_lock
from dgrctl.upstream.stack import verify_workspace


@pytest.mark.parametrize(
    ("stage", "arguments", "step"),
    [("new", ("fetch",), "os.rename:/upstream/llama.cpp"), ("fetched", ("patch",), "os.rename:/workspace/llama.cpp")],
)
def test_the_same_command_twice(tmp_path: Path, stage: Stage, arguments: tuple[str, ...], step: str) -> None:
    checkout = Checkout(tmp_path, stage)
    with holding(checkout, step, *arguments) as (first, gate), start(checkout, *arguments) as second:
        waits_for(second, first)
        gate.send(b".")
        _, first_errors = first.communicate()
        _, errors = second.communicate()
    assert (first.returncode, second.returncode) == (0, 0), first_errors + errors
    assert "nothing to do" in errors
    assert "nothing to do" not in first_errors


def test_the_holder_dies_and_the_waiter_does_the_work(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "fetched")
    with holding(checkout, "os.rename:/workspace/llama.cpp", "patch") as (first, _), start(checkout, "patch") as second:
        waits_for(second, first)
        first.kill()
        _, errors = second.communicate()
    assert second.returncode == 0, errors
    assert "applied 0 patch(es)" in errors
    assert verify_workspace(checkout.layout).applied


def test_apply_waits_for_a_fetch_under_way(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "new")
    with holding(checkout, "os.rename:/upstream/llama.cpp", "fetch") as (first, gate), start(checkout, "patch") as second:
        waits_for(second, first)
        gate.send(b".")
        first.communicate()
        _, errors = second.communicate()
    assert second.returncode == 0, errors
    assert verify_workspace(checkout.layout).applied


def test_status_waits_for_an_apply_under_way(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "fetched")
    step = "os.rename:/workspace/llama.cpp"
    with holding(checkout, step, "patch") as (first, gate), start(checkout, "patch", "status", "--json") as second:
        waits_for(second, first)
        gate.send(b".")
        first.communicate()
        output, errors = second.communicate()
    assert second.returncode == 0, errors
    assert '"applied": true' in output


@pytest.mark.parametrize("arguments", [("fetch",), ("patch",), ("patch", "status")])
def test_nothing_to_do_waits_for_no_reader(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A build reads source and workspace for minutes, and shares the locks meanwhile."""
    checkout = Checkout(tmp_path, "stacked")
    with state_lock(checkout.layout, "upstream", shared=True), state_lock(checkout.layout, "workspace", shared=True):
        done = checkout.run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "waiting" not in done.stderr


def test_what_would_change_a_source_waits_for_its_reader(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    with contextlib.ExitStack() as reader:
        reader.enter_context(state_lock(checkout.layout, "workspace", shared=True))
        with start(checkout, "patch", "apply", "--force") as second:
            assert second.stderr is not None
            assert "waiting for process" in second.stderr.readline()
            assert verify_workspace(checkout.layout).applied
            reader.close()
            _, errors = second.communicate()
    assert second.returncode == 0, errors
