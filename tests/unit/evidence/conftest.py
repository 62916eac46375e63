"""A checkout of one's own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from certifications import make_checkout

from dgrctl.evidence.keys import KEY_VARIABLE
from dgrctl.layout import Layout


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv("DGR_ROOT", str(tmp_path / "checkout"))
    return make_checkout(tmp_path / "checkout")
