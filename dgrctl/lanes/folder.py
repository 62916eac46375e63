"""The build folder of one program: laid out, configured, built and read back.

Worker and reference are compiled under the *same* path, ``.dgr/build/at/<lane>``, a link that is turned to the folder being
built; in each folder ``source/`` links to the trees. So the two compile commands of a file that both trees share are equal word
for word, and the compiler's cache answers the second. What a file calls itself (``__FILE__``) is cut to the part below that
path, so that a checkout elsewhere builds the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dgrctl.console import note
from dgrctl.errors import BuildError
from dgrctl.files import sha256_file, storage_errors, sync_folder, write_atomic
from dgrctl.lanes import cpu
from dgrctl.lanes.cmake import Outcome, configure, read_outcome
from dgrctl.lanes.isa import IsaLevel
from dgrctl.lanes.ninja import run_ninja
from dgrctl.lanes.plan import Plan
from dgrctl.lanes.record import Binary, CompilerRecord
from dgrctl.lanes.source_times import refuse_newer_inputs, remove_future_times
from dgrctl.lanes.tool import Tool, build_environment
from dgrctl.lanes.toolchain import Toolchain
from dgrctl.layout import Layout

# Written last when a folder was configured in full; says for what, and under which path: a copied checkout must not go on with
# build files that name the old one's sources.
_STAMP = "configured"
_RECORDED_OPTIONS = ("BUILD_SHARED_LIBS", "CMAKE_BUILD_TYPE", "DGR_", "GGML_", "LLAMA_")
# Folders of former configurations of one role, lane and ISA that are kept, for going back and forth between patch stacks.
_KEPT = 2


@dataclass(frozen=True)
class Workbench:
    """What all builds of one command share. ``held`` are locks that the tools inherit."""

    layout: Layout
    tools: Toolchain
    isa: IsaLevel
    lane: str
    held: tuple[int, ...]
    jobs: int | None = None


def make(bench: Workbench, plan: Plan, sources: str, *, anew: bool = False) -> Binary:
    """Builds the program of ``plan`` and proves that it is what was asked for; the old program stays until then.

    Args:
        sources: Digest of our own sources, as planned with.
        anew: Build in a new folder, which replaces the old one when the program is whole.

    Raises:
        BuildError: a tool failed, or built something else.
        StorageError: the disk is full.
    """
    started = time.monotonic()
    new = replace(plan, folder=plan.folder.with_name(f"{plan.folder.name}.new"))
    with storage_errors(new.folder):
        shutil.rmtree(new.folder, ignore_errors=True)
    # A folder that must be configured anew is emptied; not one with a program in it.
    anew = anew or ((plan.folder / "bin" / plan.program).exists() and not _is_configured(bench, plan))
    working = new if anew else plan
    program = working.folder / "bin" / plan.program
    with _set_aside(program):
        tool = build_targets(bench, working, [plan.program], title=f"Building {plan.program} ({bench.lane}, {bench.isa.name})")
        outcome = _read_proven(bench, working, tool)  # again: Ninja configures anew where a CMakeLists.txt changed
        if not program.is_file():
            raise BuildError(
                f"the build ended well but made no {plan.program}", where=str(program), remedy="dgrctl build --force"
            )
    with storage_errors(plan.folder):
        if anew:
            _put_in_place(new.folder, plan.folder)
            _link(bench.layout, plan, _compile_path(bench))
        os.utime(plan.folder)
        _sweep(plan.folder)
    program = plan.folder / "bin" / plan.program
    return Binary(
        path=str(program),
        sha256=sha256_file(program),
        folder=str(plan.folder),
        configuration=plan.configuration,
        inputs=plan.inputs,
        sources=sources,
        options={
            name: value
            for name, value in sorted(outcome.options.items())
            if name.startswith(_RECORDED_OPTIONS) and name != "DGR_LLAMA_SOURCE"
        },
        flags=cpu.backend_flags(outcome),
        compilers={
            language: CompilerRecord(path=found.path, id=found.id, version=found.version)
            for language, found in sorted(outcome.compilers.items())
        },
        built_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        build_seconds=round(time.monotonic() - started),
    )


def build_targets(bench: Workbench, plan: Plan, targets: Sequence[str], *, title: str) -> Tool:
    """Configures the folder of ``plan`` if that was not done, and builds ``targets`` in it; returns what ran the tools.

    Raises:
        BuildError: a tool failed.
        StorageError: the disk is full.
    """
    at = _compile_path(bench)
    tool = Tool(plan.folder / "build.log", build_environment(bench.layout.ccache), bench.held)
    with storage_errors(plan.folder):
        configured = _is_configured(bench, plan)
        if not configured:
            shutil.rmtree(plan.folder, ignore_errors=True)
        _link(bench.layout, plan, at)
        tool.log.unlink(missing_ok=True)
    remove_future_times((plan.source, bench.layout.root / "worker", bench.layout.root / "proto"))
    if not configured:
        note(f"Configuring {plan.program} …")
        definitions = {**plan.options, **_local_definitions(bench, at)}
        configure(bench.tools.program("cmake"), at / "source" / "worker", at, definitions, tool=tool)
        # Before minutes of compiling, and because CMake ends well even where a full disk kept it from writing its account.
        _read_proven(bench, plan, tool)
        write_atomic(plan.folder / _STAMP, _stamp(bench, plan))
    refuse_newer_inputs(plan.folder, at / "source" / "worker")
    run_ninja(bench.tools.program("ninja"), at, targets, tool=tool, title=title, jobs=bench.jobs)
    return tool


def _compile_path(bench: Workbench) -> Path:
    return bench.layout.builds / "at" / bench.lane


@contextlib.contextmanager
def _set_aside(program: Path) -> Iterator[None]:
    """Lets nothing be linked onto the old ``program``, and brings it back if no new one comes out."""
    old = program.with_name(f"{program.name}.old")
    with storage_errors(program):
        if program.exists():
            program.replace(old)
    try:
        yield
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            old.replace(program)
        raise
    with storage_errors(program):
        old.unlink(missing_ok=True)


def _put_in_place(new: Path, folder: Path) -> None:
    """Replaces ``folder`` by ``new``."""
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _read_proven(bench: Workbench, plan: Plan, tool: Tool) -> Outcome:
    """What CMake chose, if it is what was asked for; otherwise the next build configures anew."""
    try:
        outcome = read_outcome(plan.folder)
        cpu.check_outcome(outcome, bench.isa, plan.options)
    except BuildError:
        (plan.folder / _STAMP).unlink(missing_ok=True)
        tool.refuse_full_disk(())
        raise
    return outcome


def _local_definitions(bench: Workbench, at: Path) -> dict[str, str]:
    """What CMake must be told of this machine and checkout, and what leaves no trace in a binary."""
    ccache = str(bench.tools.program("ccache"))
    # Single quotes would not survive CMake's own trial compiles.
    flags = f'"-ffile-prefix-map={at}/="'
    return {
        "DGR_LLAMA_SOURCE": str(at / "source" / "llama.cpp"),
        "CMAKE_C_COMPILER": str(bench.tools.program("cc")),
        "CMAKE_CXX_COMPILER": str(bench.tools.program("c++")),
        "CMAKE_MAKE_PROGRAM": str(bench.tools.program("ninja")),
        "CMAKE_C_COMPILER_LAUNCHER": ccache,
        "CMAKE_CXX_COMPILER_LAUNCHER": ccache,
        "CMAKE_C_FLAGS": flags,
        "CMAKE_CXX_FLAGS": flags,
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
    }


def _stamp(bench: Workbench, plan: Plan) -> bytes:
    return f"{plan.configuration} {_compile_path(bench)}\n".encode()


def _is_configured(bench: Workbench, plan: Plan) -> bool:
    try:
        return (plan.folder / _STAMP).read_bytes() == _stamp(bench, plan)
    except OSError:
        return False


def _link(layout: Layout, plan: Plan, at: Path) -> None:
    source = plan.folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    at.parent.mkdir(parents=True, exist_ok=True)
    links = {
        source / "llama.cpp": plan.source,
        source / "worker": layout.root / "worker",
        source / "proto": layout.root / "proto",
        at: plan.folder,
    }
    for link, target in links.items():
        temporary = link.with_name(f".{link.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(link)
        sync_folder(link.parent)


def _sweep(built: Path) -> None:
    """Removes the oldest folders of the same role, lane and ISA."""
    prefix = built.name.rpartition("-")[0]
    others = [path for path in built.parent.iterdir() if path.name.rpartition("-")[0] == prefix and path != built]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
