"""``dgrctl matrix``: which lane, device, model and recipe may be advertised, and why the others may not."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import msgspec

from dgrctl.console import emit_json, note
from dgrctl.evidence.keys import signing_key
from dgrctl.evidence.machine import lane_states
from dgrctl.evidence.matrix import lane_matrix
from dgrctl.evidence.matrix_file import gather_inputs, write_matrix
from dgrctl.evidence.trust import local_trust
from dgrctl.layout import Layout
from dgrctl.report.matrix_table import print_matrix


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("matrix", help="print the lane matrix", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")
    parser.add_argument("--write", action="store_true", help="also sign it into certs/matrix.dsse.json")
    parser.set_defaults(run=_matrix)


def _matrix(layout: Layout, arguments: argparse.Namespace) -> int:
    key = signing_key(layout) if arguments.write else None
    matrix = lane_matrix(gather_inputs(layout, local_trust(layout), lane_states(), datetime.now(UTC).date()))
    for problem in matrix.problems:
        note(f"not used: certs/evidence/{problem.file}: {problem.reason}")
    if arguments.json:
        emit_json(msgspec.to_builtins(matrix))
    else:
        print_matrix(matrix)
    if key is not None:
        note(f"signed matrix: {write_matrix(layout, matrix, key)}")
    return 0
