"""Routes as the library makes them: what they refuse to become, what they notice while idle, what they leave behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dgr.v1 import common_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dgrctl.errors import AdmissionError, DgrError, InputError, StageError
from dgrctl.layout import Layout
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.answer import collect
from dgrctl.runtime.route import LocalRoute

if TYPE_CHECKING:
    from dgrctl.artifacts.local import LocalModel
    from dgrctl.lanes.record import BuildRecord
    from dgrctl.recipes.recipe import Recipe

PROMPT = common_pb2.Prompt(text="Name three rivers in Europe.", chat_template=True)

Make = Callable[..., LocalRoute]


@pytest.fixture
def make(layout: Layout, recipe: Recipe, verified_model: LocalModel, verified_build: BuildRecord) -> Make:
    """A route over ranges that no recipe would be let through with."""

    def of(*ranges: tuple[int, int]) -> LocalRoute:
        wanted = [LayerRange(begin, end) for begin, end in ranges]
        return LocalRoute(layout, recipe, verified_model, verified_build, wanted)

    return of


@pytest.mark.parametrize(
    ("ranges", "kind", "words"),
    [
        ([(0, 15), (15, 31)], InputError, "stage 1 (layers 15:31) refuses to start"),
        ([(0, 15), (14, 30)], InputError, "stage 1 (layers 14:30) must begin at layer 15"),
        ([(0, 14), (15, 30)], InputError, "stage 1 (layers 15:30) must begin at layer 14"),
        ([(0, 15)], InputError, "the model has 30"),
        ([(15, 30)], InputError, "must begin at layer 0"),
    ],
)
def test_ranges_that_are_no_route(make: Make, ranges: list[tuple[int, int]], kind: type[DgrError], words: str) -> None:
    route = make(*ranges)
    with pytest.raises(kind) as caught, route:
        pass
    assert words in caught.value.what
    assert caught.value.remedy
    assert all(process.wait(0) is not None for process in route.processes)


@pytest.mark.parametrize(("stage", "number"), [(0, signal.SIGKILL), (1, signal.SIGABRT)])
def test_a_death_while_nobody_asks_is_told_to_the_next_who_does(make: Make, stage: int, number: signal.Signals) -> None:
    with make((0, 15), (15, 30)) as route:
        assert collect(route.generate(PROMPT, max_tokens=2), lambda _: None).token_ids
        victim = route.processes[stage]
        os.kill(victim.pid, number)
        assert victim.wait(60.0) is not None
        for _ in range(2):
            with pytest.raises(StageError, match=rf"stage {stage} .*{number.name}"):
                list(route.generate(PROMPT, max_tokens=2))
    assert all(process.wait(0) is not None for process in route.processes)


def test_an_idle_connection_still_serves(route: LocalRoute) -> None:
    """Longer than any ping goes unanswered: it is the idleness that is tested, nothing is waited for."""
    collect(route.generate(PROMPT, max_tokens=2), lambda _: None)
    time.sleep(5.0)
    assert collect(route.generate(PROMPT, max_tokens=2), lambda _: None).token_ids


def test_every_stage_says_that_it_is_healthy(route: LocalRoute) -> None:
    import grpc  # noqa: PLC0415 - for a channel as a stranger makes it

    for stage in route.stages:
        with grpc.insecure_channel(stage.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "dgr.v1.Worker", "dgr.v1.Stage"):
                answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60.0)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_stages_describe_what_the_recipe_asked_for(route: LocalRoute, recipe: Recipe, verified_build: BuildRecord) -> None:
    for stage, process in zip(route.stages, route.processes, strict=True):
        document = stage.description.compatibility
        assert document["runtime.pin"] == verified_build.pin
        assert document["runtime.stack"] == verified_build.stack_digest
        assert document["runtime.isa"] == verified_build.isa
        assert stage.description.pid == process.pid
        assert stage.description.max_sessions == recipe.execution.sessions
        assert stage.description.resident_bytes > 0


def test_logs_are_where_the_route_says(route: LocalRoute) -> None:
    for process in route.processes:
        assert process.log is not None
        assert process.log.parent == route.folder
        assert process.log.read_text()


def test_probes_are_refused_without_permission(make: Make) -> None:
    session = common_pb2.SessionKey(route_session_id="probe", route_epoch=1)
    with make((0, 15), (15, 30)) as route:
        with pytest.raises(InputError, match="--allow-probes"):
            route.client.tap(session)
        with pytest.raises(DgrError, match="--allow-probes"):
            list(route.generate(PROMPT, max_tokens=1, logits=common_pb2.OUTPUT_ROWS_ALL))
        with pytest.raises(AdmissionError):
            list(route.generate(PROMPT, max_tokens=10_000))
        assert collect(route.generate(PROMPT, max_tokens=2), lambda _: None).token_ids


def own_descriptors() -> list[str]:
    """What this process has open of the kinds that a route opens."""
    names = [path.readlink().name for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sorted(name for name in names if "pidfd" in name or name.startswith("pipe:"))


def test_no_process_and_no_descriptor_is_left(make: Make) -> None:
    before = own_descriptors()
    with make((0, 15), (15, 30)) as route:
        assert len(own_descriptors()) > len(before)
        processes = route.processes
    assert all(process.wait(0) is not None for process in processes)
    assert own_descriptors() == before
