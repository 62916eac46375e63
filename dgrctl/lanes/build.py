"""``dgrctl build``: both programs of a lane from proven trees, their record, and the proof that they still are what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dgrctl.console import note
from dgrctl.errors import BuildError, InputError, IntegrityError, ToolchainError, UsageError
from dgrctl.files import sha256_file
from dgrctl.lanes import cpu
from dgrctl.lanes.device import unavailable_reason
from dgrctl.lanes.folder import Workbench, build_targets, make
from dgrctl.lanes.isa import IsaLevel, highest, lacking, level
from dgrctl.lanes.plan import PROGRAMS, ROLES, Plan, Sources, own_sources_digest, plan
from dgrctl.lanes.processor import Processor, read_processor
from dgrctl.lanes.record import WORKER, Binary, BuildRecord, Trees, load_record, record_path, save_record
from dgrctl.lanes.toolchain import find_toolchain
from dgrctl.layout import Layout
from dgrctl.statelock import state_lock
from dgrctl.upstream.fetch import LOCK as UPSTREAM_LOCK
from dgrctl.upstream.fetch import verify_pristine
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.stack import LOCK as WORKSPACE_LOCK
from dgrctl.upstream.stack import verify_workspace

TEST_PROGRAM = f"{WORKER}-tests"


@dataclass(frozen=True)
class BuildResult:
    """The record, and the programs that this command built; none of them if there was nothing to do."""

    record: BuildRecord
    built: tuple[str, ...]


def build(
    layout: Layout,
    lane: str,
    *,
    isa: str | None = None,
    roles: Sequence[str] = ROLES,
    force: bool = False,
    jobs: int | None = None,
) -> BuildResult:
    """Builds what is not built yet, from trees that prove right.

    Args:
        isa: ISA level; None for the highest that this processor has.
        force: Build anew in new folders, whatever is there. What is there stays until the new program is whole.
        jobs: Commands at once; None for what processors and memory allow.

    Raises:
        ToolchainError: this version does not build the lane, or a tool is missing; names its package.
        UsageError: there is no such ISA level.
        FetchError, PatchError: upstream or workspace is not there yet.
        IntegrityError: a tree or a built program was changed; names the file.
        BuildError: a tool failed, or built something else than asked for.
        StorageError: the disk is full.
    """
    with _at_work(layout, lane, isa, jobs) as bench:
        sources = _proven_sources(layout, roles)
        record = _standing(layout, lane, sources, bench, forced=force)
        binaries = dict(record.binaries) if record is not None else {}
        built = []
        for index, role in enumerate(roles):
            wanted = plan(layout, role, lane=lane, isa=bench.isa, sources=sources, tools=bench.tools)
            if not force and _is_built(binaries.get(wanted.program), wanted):
                continue
            binary = make(bench, wanted, sources.own, anew=force)
            if force:
                # An old program that was compiled otherwise is about to be replaced, too.
                for later in roles[index + 1 :]:
                    if (old := binaries.get(PROGRAMS[later])) is not None and not _alike(old, binary):
                        del binaries[PROGRAMS[later]]
            binaries[wanted.program] = binary
            built.append(wanted.program)
            if _proven_sources(layout, roles) != sources:
                raise BuildError(
                    "worker/ or proto/ was edited while it was built, so nothing can be recorded of this build",
                    where=str(layout.root / "worker"),
                    remedy=f"dgrctl build --lane {lane}",
                )
            # Recorded one by one: a kill between the two keeps the first.
            record = _record(layout, bench, sources, binaries)
        if record is None:
            raise UsageError("nothing was asked to be built", where="--role", remedy=f"name one of {', '.join(ROLES)}")
        return BuildResult(record, tuple(built))


def verified_build(layout: Layout, lane: str) -> BuildRecord:
    """The lane's build, if it is there, unchanged, of the current pin and stack, and can run on this processor.

    Raises:
        BuildError: not built yet, or built from another pin, stack or other sources; the remedy is the command.
        IntegrityError: a program was changed; names the file.
        ToolchainError: this processor lacks what the build's ISA level needs.
    """
    remedy = f"dgrctl build --lane {lane}"
    record = load_record(layout, lane)
    if record is None or set(PROGRAMS.values()) - record.binaries.keys():
        raise BuildError(f"the lane {lane} was not built yet", where=str(record_path(layout, lane)), remedy=remedy)
    for binary in record.binaries.values():
        _verify(binary, lane)
    manifest, stack = load_manifest(layout), verify_workspace(layout)
    current = {"pin": manifest.commit, "stack_digest": stack.stack_digest}
    for field, value in current.items():
        if getattr(record, field) != value:
            raise BuildError(
                f"the lane {lane} was built from another {field}: {getattr(record, field)}, current is {value}",
                where=f"{record_path(layout, lane)}: {field}",
                remedy=remedy,
            )
    own = own_sources_digest(layout)
    for name, binary in record.binaries.items():
        if binary.sources != own:
            raise BuildError(f"worker/ or proto/ changed since {name} was built", where=binary.path, remedy=remedy)
    refuse_foreign_isa(record.isa, lane)
    return record


def refuse_foreign_isa(name: str, lane: str, processor: Processor | None = None) -> None:
    """Refuses to run a build that would die of an illegal instruction.

    Raises:
        ToolchainError: names what the processor lacks.
    """
    processor = processor or read_processor()
    missing = lacking(level(name, processor.machine), processor.flags)
    if missing:
        raise ToolchainError(
            f"the lane {lane} is built for {name}; this processor lacks {', '.join(missing)}",
            where=processor.name,
            remedy=f"dgrctl build --lane {lane}, which takes the highest level of this processor",
        )


def build_tests(layout: Layout, lane: str) -> Path:
    """Builds the worker's C++ unit tests in the worker's own folder; returns the test program.

    Raises:
        DgrError: as :func:`build`.
    """
    return build_extra(layout, lane, "worker", [TEST_PROGRAM], title="Building the worker's unit tests")[0]


def build_extra(layout: Layout, lane: str, role: str, programs: Sequence[str], *, title: str) -> list[Path]:
    """Builds programs other than the lane's own in the folder of ``role``, from the same tree; returns them in order.

    Raises:
        DgrError: as :func:`build`.
    """
    with _at_work(layout, lane) as bench:
        sources = _proven_sources(layout, (role,))
        wanted = plan(layout, role, lane=lane, isa=bench.isa, sources=sources, tools=bench.tools)
        build_targets(bench, wanted, programs, title=title)
        return [wanted.folder / "bin" / program for program in programs]


@contextlib.contextmanager
def held_build(layout: Layout, lane: str) -> Iterator[None]:
    """Lets nobody build ``lane`` during the block, while others may use what was built."""
    with state_lock(layout, _lock_name(lane), shared=True):
        yield


def _lock_name(lane: str) -> str:
    return f"build-{lane}"


@contextlib.contextmanager
def _at_work(layout: Layout, lane: str, isa: str | None = None, jobs: int | None = None) -> Iterator[Workbench]:
    """Finds the tools and holds everything that must not change under them."""
    chosen = _level(lane, isa)
    tools = find_toolchain()
    with (
        state_lock(layout, _lock_name(lane)) as build_lock,
        state_lock(layout, UPSTREAM_LOCK, shared=True) as upstream_lock,
        state_lock(layout, WORKSPACE_LOCK, shared=True) as workspace_lock,
    ):
        yield Workbench(layout, tools, chosen, lane, (build_lock, upstream_lock, workspace_lock), jobs)


def _proven_sources(layout: Layout, roles: Sequence[str]) -> Sources:
    """What there is to build from; every tree that one of ``roles`` needs proves right."""
    manifest = load_manifest(layout)
    if "reference" in roles:
        verify_pristine(layout)
    stack = verify_workspace(layout)
    return Sources(manifest.commit, manifest.tree, stack.tree, stack.stack_digest, own_sources_digest(layout))


def _level(lane: str, name: str | None) -> IsaLevel:
    if lane != cpu.NAME:
        raise ToolchainError(
            f"the lane {lane} cannot be built: {unavailable_reason(lane)}", where="--lane", remedy="dgrctl build --lane cpu"
        )
    processor = read_processor()
    reached = highest(processor.machine, processor.flags)
    if name is None:
        if reached is None:
            raise ToolchainError(
                f"no ISA level is defined for {processor.machine}", where=processor.name, remedy="build on x86_64 or aarch64"
            )
        return reached
    wanted = level(name, processor.machine)
    missing = lacking(wanted, processor.flags)
    if missing:
        note(f"building for {name}, which this processor cannot run (it lacks {', '.join(missing)}): for another machine")
    return wanted


def _standing(layout: Layout, lane: str, sources: Sources, bench: Workbench, *, forced: bool = False) -> BuildRecord | None:
    """The record that stands, with only the programs of these trees, tools and level. ``forced``: None if it is damaged."""
    try:
        record = load_record(layout, lane)
    except InputError:
        if not forced:
            raise
        return None
    if record is None:
        return None
    keep = {
        program: binary
        for role, program in PROGRAMS.items()
        if (binary := record.binaries.get(program)) is not None
        and binary.configuration == plan(layout, role, lane=lane, isa=bench.isa, sources=sources, tools=bench.tools).configuration
    }
    return msgspec.structs.replace(record, binaries=keep) if keep else None


def _is_built(binary: Binary | None, wanted: Plan) -> bool:
    """Whether the program of these inputs is there; one that is there but was changed is refused, not repaired in silence."""
    if binary is None or binary.inputs != wanted.inputs or not Path(binary.path).exists():
        return False
    _verify(binary, wanted.options["DGR_LANE"])
    return True


def _alike(one: Binary, other: Binary) -> bool:
    """Whether both were compiled by the same compilers and flags."""
    return (one.flags, one.compilers) == (other.flags, other.compilers)


def _verify(binary: Binary, lane: str) -> None:
    path = Path(binary.path)
    if not path.is_file():
        raise BuildError("a program of this build is gone", where=binary.path, remedy=f"dgrctl build --lane {lane}")
    found = sha256_file(path)
    if found != binary.sha256:
        raise IntegrityError(
            f"this program is not the one that was built: its SHA-256 is {found}, recorded is {binary.sha256}",
            where=binary.path,
            remedy=f"dgrctl build --lane {lane} --force",
        )


def _record(layout: Layout, bench: Workbench, sources: Sources, binaries: dict[str, Binary]) -> BuildRecord:
    """Saves what stands now, if both programs came out of the same flags."""
    record = BuildRecord(
        schema=1,
        lane=bench.lane,
        isa=bench.isa.name,
        pin=sources.pin,
        stack_digest=sources.stack_digest,
        trees=Trees(upstream=sources.upstream_tree, patched=sources.patched_tree),
        tools=bench.tools.versions(),
        binaries=binaries,
    )
    first, *others = binaries.values()
    for other in others:
        if not _alike(first, other):
            raise BuildError(
                "worker and reference were compiled differently, so one cannot judge the other",
                where=record_path(layout, bench.lane).as_posix(),
                detail=f"{Path(first.path).name}: {' '.join(first.flags)}\n{Path(other.path).name}: {' '.join(other.flags)}",
                remedy=f"dgrctl build --lane {bench.lane} --force",
            )
    save_record(layout, record)
    return record
