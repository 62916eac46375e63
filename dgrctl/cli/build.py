"""``dgrctl build``: the worker and the reference of one lane."""

from __future__ import annotations

import argparse

import msgspec

from dgrctl.console import emit_json, note
from dgrctl.lanes.build import BuildResult, build
from dgrctl.lanes.device import LANES
from dgrctl.lanes.plan import ROLES
from dgrctl.layout import Layout


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``build``."""
    parser = commands.add_parser("build", help="build the worker and the reference of one lane")
    parser.add_argument("--lane", required=True, choices=LANES, help="which backend to build for")
    parser.add_argument("--isa", metavar="LEVEL", help="ISA level, such as x86-64-v3 (default: the highest of this processor)")
    parser.add_argument("--role", choices=(*ROLES, "all"), default="all", help="build only one of the two programs")
    parser.add_argument("--jobs", type=_jobs, metavar="N", help="commands at once (default: as processors and memory allow)")
    parser.add_argument("--force", action="store_true", help="build anew, whatever is there")
    parser.add_argument("--json", action="store_true", help="print the build record as JSON on stdout")
    parser.set_defaults(run=_build)


def _jobs(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one command must run at a time")
    return number


def _build(layout: Layout, arguments: argparse.Namespace) -> int:
    roles = ROLES if arguments.role == "all" else (arguments.role,)
    result = build(layout, arguments.lane, isa=arguments.isa, roles=roles, force=arguments.force, jobs=arguments.jobs)
    if arguments.json:
        emit_json(msgspec.to_builtins(result.record))
    _tell(result)
    return 0


def _tell(result: BuildResult) -> None:
    if not result.built:
        names = " and ".join(sorted(result.record.binaries))
        note(f"nothing to do: built and unchanged for {result.record.lane}, {result.record.isa}: {names}")
    for program in result.built:
        binary = result.record.binaries[program]
        note(f"built {program} for {result.record.lane}, {result.record.isa}: {binary.path}, SHA-256 {binary.sha256}")
