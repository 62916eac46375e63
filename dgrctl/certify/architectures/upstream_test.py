"""Upstream's own test of architectures (tests/test-llama-archs.cpp), run on the patched tree without any layer range.

It shows that the patch stack changes nothing for a model that nobody splits.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from dgrctl.certify.architectures.synthesis import SEED, architecture_names
from dgrctl.errors import CertificationFailed, CertificationVoid
from dgrctl.lanes.build import build_extra
from dgrctl.layout import Layout
from dgrctl.offspring import marked

UPSTREAM_TEST = "test-llama-archs"

# test_backends() in upstream's file passes these over.
_PASSED_OVER = frozenset({"gemma4", "gemma4-assistant", "eagle3", "dflash"})
# A row is "|name|device|config|NMSE|roundtrip|". Its last two words are coloured. A heading and a rule stand above the rows.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROW = re.compile(r"\| *([^| ]+)\|[^|]*\|[^|]+\|([^|]+\|[^|]+)\|")
_SUMMARY = re.compile(r"Summary: all (\d+) test\(s\) passed")
_TAIL_LINES = 20


def upstream_test(layout: Layout, lane: str, names: Sequence[str] = ()) -> str:
    """Builds and runs the test; returns its summary, such as "Summary: all 10 test(s) passed".

    Args:
        names: Architectures; all of the pin if empty.

    Raises:
        CertificationFailed: the test failed. The stack changes what a whole model computes.
        CertificationVoid: the test ended well, but it did not say that it ran all that was asked for.
        BuildError: the test cannot be built.
    """
    title = "Building upstream's test of architectures"
    (program,) = build_extra(layout, lane, "worker", [UPSTREAM_TEST], title=title)
    wanted = list(names) or architecture_names(layout)
    chosen = f"^({'|'.join(re.escape(name) for name in wanted)})$"
    done = subprocess.run([str(program), "-s", str(SEED), "-a", chosen], env=marked(os.environ), capture_output=True, check=False)
    return judge(done.returncode, (done.stdout + done.stderr).decode(errors="replace"), set(wanted) - _PASSED_OVER, program)


def judge(returncode: int, output: str, expected: Collection[str], program: Path) -> str:
    """The summary of a run that passed: exit code 0, a row for each architecture, no failed cell, and a count that fits the rows.

    Args:
        output: All that the program printed.
        expected: The architectures that must have a row. None other may have one.

    Raises:
        CertificationFailed, CertificationVoid: see :func:`upstream_test`.
    """
    lines = _COLOUR.sub("", output).strip().splitlines()
    tail = "\n".join(lines[-_TAIL_LINES:])
    rows = _rows(lines)
    if returncode != 0 or any("FAIL" in results for _, results in rows):
        raise CertificationFailed(
            f"upstream's test of architectures failed on the patched tree (exit code {returncode})",
            where=str(program),
            detail=tail,
            remedy="find the patch that changes a whole model: dgrctl patch shell",
        )
    found = {name for name, _ in rows}
    executed = sum("OK" in results for _, results in rows)
    summary = next((line for line in reversed(lines) if _SUMMARY.fullmatch(line)), "")
    problem = ""
    if missing := sorted(set(expected) - found):
        problem = f"it printed no result for {', '.join(missing)}"
    elif extra := sorted(found - set(expected)):
        problem = f"it printed a result for {', '.join(extra)}, which nobody asked for"
    elif not summary:
        problem = "it printed no summary that says that all tests passed"
    elif summary != f"Summary: all {executed} test(s) passed":
        problem = f"its summary is {summary!r}, but it printed {executed} results"
    if problem:
        raise CertificationVoid(
            f"upstream's test of architectures ended with exit code 0, but {problem}",
            where=str(program),
            detail=tail,
            remedy="run it again; if its output has a new form, teach dgrctl/certify/architectures/upstream_test.py that form",
        )
    return summary


def _rows(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Architecture and results of each row. (The heading's first cell is two words, the rule's is dashes.)"""
    rows = [match.groups() for match in map(_ROW.fullmatch, lines) if match]
    return [(name, results) for name, results in rows if name.strip("-")]
