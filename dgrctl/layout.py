"""Where everything lies: the checkout's own files, and the one ignored folder for everything made from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dgrctl.errors import UsageError


@dataclass(frozen=True)
class Layout:
    """Paths of one checkout. ``root`` holds pyproject.toml; ``state`` is ``root/.dgr``."""

    root: Path

    @classmethod
    def find(cls) -> Layout:
        """The checkout this package is installed from (editable), or the one that ``DGR_ROOT`` names.

        Raises:
            UsageError: neither holds ``manifests/upstream``.
        """
        root = Path(os.environ.get("DGR_ROOT") or Path(__file__).resolve().parent.parent).resolve()
        if not (root / "manifests" / "upstream").is_dir():
            raise UsageError(
                f"{root} is not a DGR checkout: it has no manifests/upstream",
                remedy="run dgrctl from a checkout's own .dgr/venv, or set DGR_ROOT to a checkout",
            )
        return cls(root)

    @property
    def state(self) -> Path:
        return self.root / ".dgr"

    @property
    def locks(self) -> Path:
        """Owner records and flocks of the steps under way."""
        return self.state / "locks"

    @property
    def downloads(self) -> Path:
        return self.state / "downloads"

    @property
    def pristine(self) -> Path:
        """Untouched upstream at the pin: the reference is built from it."""
        return self.state / "upstream" / "llama.cpp"

    @property
    def workspace(self) -> Path:
        """Upstream with the patch stack applied: the worker is built from it."""
        return self.state / "workspace" / "llama.cpp"

    @property
    def builds(self) -> Path:
        return self.state / "build"

    @property
    def ccache(self) -> Path:
        return self.state / "ccache"

    @property
    def runs(self) -> Path:
        """Logs of workers and references, one folder a run."""
        return self.state / "runs"

    @property
    def keys(self) -> Path:
        return self.state / "keys"

    @property
    def default_storage(self) -> Path:
        """Model storage unless DGR_STORAGE or --storage names another."""
        return self.state / "models"

    @property
    def patches(self) -> Path:
        return self.root / "patches" / "llama.cpp"

    @property
    def upstream_manifest(self) -> Path:
        return self.root / "manifests" / "upstream" / "llama.cpp.toml"

    @property
    def model_manifests(self) -> Path:
        return self.root / "manifests" / "models"

    @property
    def target_manifests(self) -> Path:
        return self.root / "manifests" / "targets"

    @property
    def recipes(self) -> Path:
        return self.root / "recipes"

    @property
    def certs(self) -> Path:
        return self.root / "certs"

    @property
    def evidence(self) -> Path:
        return self.certs / "evidence"

    @property
    def ledger(self) -> Path:
        return self.certs / "ledger.jsonl"
