"""Checkouts of a small upstream: new, fetched, with an empty stack applied, and with a stack of three patches."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream_checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout with nothing fetched yet."""
    return Checkout(tmp_path, "new")


@pytest.fixture
def fetched(tmp_path: Path) -> Checkout:
    """A checkout with its upstream fetched."""
    return Checkout(tmp_path, "fetched")


@pytest.fixture
def applied(tmp_path: Path) -> Checkout:
    """A checkout with the workspace made from a stack of no patches."""
    return Checkout(tmp_path, "applied")


@pytest.fixture
def stacked(tmp_path: Path) -> Checkout:
    """A checkout with a stack of three patches, exported and applied."""
    return Checkout(tmp_path, "stacked")
