"""Judging upstream's own test: nothing that it did not say counts as passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgrctl.certify.architectures.upstream_test import judge
from dgrctl.errors import CertificationFailed, CertificationVoid

# As the program of the pin prints it.
OUTPUT = """\
|     Model arch.|  Device|Config|   NMSE vs. CPU|Roundtrip|
|----------------|--------|------|---------------|---------|
|           llama|AMD EPYC| Dense|  \x1b[1;32mOK\x1b[0m (0.00e+00)|       \x1b[1;32mOK\x1b[0m|
|           llama|    Meta| Dense|\x1b[1;33mSKIP\x1b[0m           |     \x1b[1;33mSKIP\x1b[0m|
|           llama|AMD EPYC|   MoE|  \x1b[1;32mOK\x1b[0m (0.00e+00)|       \x1b[1;32mOK\x1b[0m|
|           llama|    Meta|   MoE|\x1b[1;33mSKIP\x1b[0m           |     \x1b[1;33mSKIP\x1b[0m|
|       deepseek4|AMD EPYC|   MoE|  \x1b[1;32mOK\x1b[0m (0.00e+00)|     \x1b[1;33mSKIP\x1b[0m|
|       deepseek4|    Meta|   MoE|\x1b[1;33mSKIP\x1b[0m           |     \x1b[1;33mSKIP\x1b[0m|
Summary: all 3 test(s) passed
0.00.000.705 I upstream_main: using seed 1, stdev 0.100000
"""
EXPECTED = {"llama", "deepseek4"}


def _judge(output: str, *, returncode: int = 0, expected: set[str] = EXPECTED) -> str:
    return judge(returncode, output, expected, Path("/build/bin/test-llama-archs"))


def _cut(lines: int) -> str:
    return "".join(OUTPUT.splitlines(keepends=True)[:lines])


def test_a_complete_run_gives_its_summary() -> None:
    assert _judge(OUTPUT) == "Summary: all 3 test(s) passed"


@pytest.mark.parametrize("lines", range(9))
def test_lost_last_lines_are_no_success(lines: int) -> None:
    with pytest.raises(CertificationVoid, match="ended with exit code 0, but it printed no"):
        _judge(_cut(lines))


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (OUTPUT.replace("all 3", "all 4"), "its summary is 'Summary: all 4 test.s. passed', but it printed 3 results"),
        (OUTPUT.replace("|           llama|AMD EPYC|   MoE", "cut |"), "but it printed 2 results"),
        ("Summary: no tests executed\n", "no result for deepseek4, llama"),
        (OUTPUT.replace("llama", "lama"), "no result for llama"),
        (OUTPUT.replace("all 3 test(s) passed", "3 test(s) executed, 1 failed"), "no summary that says that all tests passed"),
    ],
)
def test_output_that_contradicts_itself_is_no_success(output: str, told: str) -> None:
    with pytest.raises(CertificationVoid, match=told):
        _judge(output)


def test_a_row_that_nobody_asked_for_is_told() -> None:
    with pytest.raises(CertificationVoid, match="a result for llama, which nobody asked for"):
        _judge(OUTPUT, expected={"deepseek4"})


@pytest.mark.parametrize(
    ("output", "returncode"),
    [
        (OUTPUT, 1),
        (OUTPUT, -6),
        ("", 1),
        (OUTPUT.replace("\x1b[1;32mOK\x1b[0m (0.00e+00)", "\x1b[1;31mFAIL\x1b[0m (2.00e-02)"), 0),
    ],
)
def test_a_failure_is_a_failure(output: str, returncode: int) -> None:
    with pytest.raises(CertificationFailed, match="failed on the patched tree"):
        _judge(output, returncode=returncode)
