"""Fixtures for everything that needs what `make certify` makes: the built programs, the pulled model, routes of real workers.

Where that is missing, the tests that need it are left out, the others run, and the session fails with one message that names the
command. tests/unit needs nothing of it; its small models are made on the spot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.tmpdir import tmppath_result_key
from cpu_cgroups import CpuCgroup
from fixture_models import FixtureModels

import dgrctl.wire as _wire  # noqa: F401 - puts the generated contract on the path as dgr.v1
from dgrctl.artifacts import provision
from dgrctl.artifacts.local import LocalModel
from dgrctl.errors import DgrError, InputError
from dgrctl.lanes import build
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.recipes.placement import resolve
from dgrctl.recipes.recipe import Recipe, find_recipe, load_recipe
from dgrctl.runtime.route import LocalRoute

MODEL = "smollm2-135m-instruct-q4_1"
GEMMA = "gemma-3-270m-q4_k_m"
TWO_STAGES = "smollm2-135m.cpu-2stage"
THREE_STAGES = "smollm2-135m.cpu-3stage"


# What only `make certify` makes.
MADE = frozenset({"verified_build", "verified_model", "gemma_model", "dgrctl"})
_REFUSAL = pytest.StashKey[str]()


def pytest_configure() -> None:
    """What ends programs is part of what is tested. A shell that starts the tests in the background has SIGINT ignored, nohup has
    SIGHUP, and every program would inherit that; handlers are not inherited."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what cannot run because something is missing here."""
    needing = [item for item in items if _needs_made(item)]
    missing = _missing(Layout.find()) if needing else None
    if missing is None:
        return
    config.stash[_REFUSAL] = (
        f"{len(needing)} tests did not run: they need what `make certify` makes, and {missing.what} ({missing.where}).\n"
        "Run `make certify` first, then `make test`."
    )
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if item not in set(needing)]


def _needs_made(item: pytest.Item) -> bool:
    return "integration" in item.path.parts or not MADE.isdisjoint(getattr(item, "fixturenames", ()))


def _missing(layout: Layout) -> DgrError | None:
    try:
        build.verified_build(layout, "cpu")
        for model in (MODEL, GEMMA):
            provision.verified_model(layout, model)
        if not layout.ledger.is_file():
            raise InputError("this checkout has no certification yet", where=str(layout.ledger))
    except DgrError as error:
        return error
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says last what did not run."""
    refusal = config.stash.get(_REFUSAL, None)
    if refusal is not None:
        terminalreporter.section("not everything was tested", red=True)
        terminalreporter.write_line(refusal)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session that left tests out is no success."""
    if _REFUSAL in session.config.stash and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_keyboard_interrupt() -> None:
    """What Ctrl-C broke off leaves open files behind. They are no finding, and must not end the session in a traceback."""
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """pytest's tmp_path expects a report of each test that used it. A test that Ctrl-C ended while its fixtures were made has
    none, and the session ended in a KeyError instead of its summary."""
    item.stash.setdefault(tmppath_result_key, {})


@pytest.fixture(scope="session")
def layout() -> Layout:
    """The checkout under test."""
    return Layout.find()


@pytest.fixture(scope="session")
def verified_build(layout: Layout) -> BuildRecord:
    """The CPU lane's programs, as recorded and unchanged."""
    return build.verified_build(layout, "cpu")


@pytest.fixture(scope="session")
def verified_model(layout: Layout) -> LocalModel:
    """SmolLM2-135M, hashed."""
    return provision.verified_model(layout, MODEL)


@pytest.fixture(scope="session")
def gemma_model(layout: Layout) -> LocalModel:
    """Gemma 3 270M, hashed."""
    return provision.verified_model(layout, GEMMA)


@pytest.fixture(scope="session")
def fixture_models(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> FixtureModels:
    """Makes small random models with the structure of large ones, each once per test session."""
    return FixtureModels(layout, tmp_path_factory.mktemp("fixtures"))


@pytest.fixture(scope="session")
def recipe(layout: Layout) -> Recipe:
    """The 2-stage recipe that is certified."""
    return load_recipe(find_recipe(layout, TWO_STAGES))


@pytest.fixture(scope="session")
def three_stage_recipe(layout: Layout) -> Recipe:
    """The 3-stage recipe."""
    return load_recipe(find_recipe(layout, THREE_STAGES))


@pytest.fixture(scope="session")
def open_route(
    layout: Layout, verified_build: BuildRecord, verified_model: LocalModel
) -> Callable[..., contextlib.AbstractContextManager[LocalRoute]]:
    """Makes a route of real workers for a recipe; keywords are LocalRoute's. Enter it to start them."""

    def make(recipe: Recipe, **options: object) -> LocalRoute:
        ranges = resolve(recipe, verified_model)
        return LocalRoute(layout, recipe, verified_model, verified_build, ranges, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="module")
def route(open_route: Callable[..., LocalRoute], recipe: Recipe) -> Iterator[LocalRoute]:
    """Two running stages that allow probes, shared by one module's tests; leave them as they were."""
    with open_route(recipe, allow_probes=True) as running:
        yield running


class Dgrctl:
    """Runs the command line as a user does, in a process of its own."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.environment = dict(os.environ, PYTHONUNBUFFERED="1")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "dgrctl", *arguments]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """To its end."""
        return subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, cwd=self.layout.root, env=self.environment, check=False
        )

    @contextlib.contextmanager
    def start(
        self, *arguments: str, stderr: Path | None = None, before: Sequence[str] = (), **environment: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """While the block goes on; afterwards it is killed, and its workers go with it. ``before``: a program that starts it."""
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(stderr.open("wb")) if stderr is not None else subprocess.PIPE
            process = stack.enter_context(
                subprocess.Popen(
                    [*before, *self.command(*arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                    cwd=self.layout.root, env=self.environment | environment,
                )
            )  # fmt: skip
            stack.callback(process.kill)
            yield process


@pytest.fixture(scope="session")
def dgrctl(layout: Layout) -> Dgrctl:
    """The command line."""
    return Dgrctl(layout)


@pytest.fixture
def cpu_cgroup() -> Iterator[Callable[[int], CpuCgroup]]:
    """Makes a cgroup with a CPU quota, in hundredths of a processor."""
    cgroup = CpuCgroup()
    try:
        yield cgroup.make
    finally:
        cgroup.remove()
