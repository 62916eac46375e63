from __future__ import annotations

from pathlib import Path

import pytest
from small_models import TinyModel, make_tiny_model


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyModel:
    """A checkout with one tiny model of four layers, stored and good."""
    monkeypatch.delenv("DGR_STORAGE", raising=False)
    model = make_tiny_model(tmp_path / "checkout")
    model.put()
    return model
