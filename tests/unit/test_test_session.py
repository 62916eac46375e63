"""The test session itself: what it says where nothing is built, and after Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def _pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env=os.environ | environment,
        check=False,
    )


def test_where_nothing_is_built_one_message_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "manifests" / "upstream").mkdir(parents=True)
    done = _pytest("tests/integration/test_run.py", "tests/unit/test_canonical.py", DGR_ROOT=str(tmp_path))
    assert done.returncode == 1
    assert "tests did not run: they need what `make certify` makes, and the lane cpu was not built yet" in done.stdout
    assert "Run `make certify` first, then `make test`." in done.stdout
    assert " passed" in done.stdout
    assert " failed" not in done.stdout
    assert " error" not in done.stdout


def test_an_interrupted_session_ends_in_its_summary(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_interrupted.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture\ndef broken_off(tmp_path):\n    raise KeyboardInterrupt\n\n"
        "def test_first(): pass\n\n"
        "def test_second(broken_off): pass\n"
    )
    path = os.pathsep.join([str(TESTS), str(TESTS / "support")])
    done = _pytest("-p", "conftest", "-c", str(tmp_path / "pytest.ini"), str(tmp_path), PYTHONPATH=path)
    assert done.returncode == 2
    assert "KeyboardInterrupt" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("1 passed")
    assert "StashKey" not in done.stdout + done.stderr
