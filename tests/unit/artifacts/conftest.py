from __future__ import annotations

from pathlib import Path

import pytest
from small_models import TinyModel, make_tiny_model


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyModel:
    """A checkout with one tiny model that has not been pulled."""
    monkeypatch.delenv("DGR_STORAGE", raising=False)
    return make_tiny_model(tmp_path / "checkout")
