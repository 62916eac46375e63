"""The picture of the packages in docs/architecture.md is the one that the imports give, and the import contract holds."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "package_diagram.py"


def test_the_page_shows_the_imports_as_they_are() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text(encoding="utf-8")
    drawn = script["diagram"](script["packages"]())
    assert script["page_with"](drawn, page) == page, "draw it again: python scripts/package_diagram.py --write"


def test_what_a_longer_way_implies_is_left_out() -> None:
    script = runpy.run_path(str(SCRIPT))
    drawn = script["diagram"]({"cli": {"certify", "errors"}, "certify": {"errors"}, "errors": set()})
    assert "cli --> certify" in drawn
    assert "certify --> errors" in drawn
    assert "cli --> errors" not in drawn


def test_a_page_without_its_marks_is_refused() -> None:
    script = runpy.run_path(str(SCRIPT))
    with pytest.raises(ValueError, match="has lost its marks"):
        script["page_with"]("", "# Architecture\n")


def test_an_import_upwards_breaks_the_contract(tmp_path: Path) -> None:
    package = tmp_path / "dgrctl"
    for room in ("cli", "report"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "report" / "wrong.py").write_text("import dgrctl.cli\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_package = "dgrctl"\n[[tool.importlinter.contracts]]\n'
        'name = "Imports run downwards"\ntype = "layers"\nlayers = ["dgrctl.cli", "dgrctl.report"]\n'
    )
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "dgrctl.report.wrong -> dgrctl.cli" in done.stdout
