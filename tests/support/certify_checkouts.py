"""Checkouts beside this one to certify in.

Each has its own locks, prompts, recipes, keys, ledger and evidence; what was built and pulled is this one's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dgrctl.files import sha256_file
from dgrctl.layout import Layout

PROMPTS = """\
schema = 1
name = "quick"
[[prompts]]
id = "short"
language = "en"
text = "The three primary colours are"
[[prompts]]
id = "crossing"
language = "de"
text = "Am Morgen lag Nebel über dem Fluss, und die Brücke schien im Nichts zu enden. Wer hinüber wollte, hielt an."
"""
LOCK = """\
schema = 1
id = "quick"
version = {version}
lane = "{lane}"
model = "{model}"
class = "real-hardware"
valid_days = 90
locked_at = "2026-11-29"
[prompt_set]
name = "quick"
sha256 = "{sha256}"
prompts = 2
[parity]
require = "bit-identical"
decode_steps = {decode_steps}
outputs = ["all", "last"]
[speed]
warmup = 1
{rule}
prompt_tokens = 24
generate_tokens = 8
min_ratio_prefill = "{minimum}"
min_ratio_decode = "0.01"
confidence = "0.95"
decode_slice_tokens = 8
"""
SHARED = ("manifests", "patches", "proto", "worker")
SHARED_STATE = ("upstream", "workspace", "build", "models")
RECIPES = ("smollm2-135m.cpu-2stage", "smollm2-135m.cpu-2stage-bf16")
RECIPE = RECIPES[0]


class Checkout:
    """A checkout to certify in."""

    def __init__(self, real: Layout, root: Path) -> None:
        self.layout = Layout(root)
        self.layout.state.mkdir(parents=True)
        for name in SHARED:
            (root / name).symlink_to(real.root / name)
        for name in SHARED_STATE:
            (self.layout.state / name).symlink_to(real.state / name)
        self.layout.recipes.mkdir()
        for name in RECIPES:
            self._copy_recipe(real, name)
        self.prompts = root / "certs" / "prompts" / "quick.toml"
        self.prompts.parent.mkdir(parents=True)
        self.prompts.write_text(PROMPTS, encoding="utf-8")
        (root / "certs" / "locks").mkdir()
        self.lock()

    def _copy_recipe(self, real: Layout, name: str) -> None:
        """With a ubatch that the short prompts here cross, and one thread, which busy machines slow down least."""
        text = (real.recipes / f"{name}.toml").read_text(encoding="utf-8")
        for old, new in (("ubatch = 128", "ubatch = 32"), ("threads = 2", "threads = 1")):
            assert old in text
            text = text.replace(old, new)
        (self.layout.recipes / f"{name}.toml").write_text(text, encoding="utf-8")

    def lock(self, version: int = 1, **fields: object) -> str:
        """Writes a lock; returns its name."""
        values: dict[str, object] = {
            "lane": "cpu",
            "model": "smollm2-135m-instruct-q4_1",
            "sha256": sha256_file(self.prompts),
            "decode_steps": 4,
            "minimum": "0.01",
            "rule": "pairs = 5\nbootstrap_resamples = 1000",
        }
        path = self.layout.certs / "locks" / f"quick.v{version}.toml"
        path.write_text(LOCK.format(version=version, **(values | fields)), encoding="utf-8")
        return path.stem

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "dgrctl", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"DGR_ROOT": str(self.layout.root), "PYTHONUNBUFFERED": "1"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True, check=False)

    def certify(self, *arguments: str, recipe: str = RECIPE, lane: str = "cpu") -> subprocess.CompletedProcess[str]:
        finished = self.run("certify", "--json", "--lane", lane, "--recipe", recipe, *arguments)
        assert "Traceback" not in finished.stderr
        return finished

    def records(self) -> list[dict[str, Any]]:
        """Bodies of the ledger's records."""
        if not self.layout.ledger.exists():
            return []
        return [json.loads(line)["body"] for line in self.layout.ledger.read_text(encoding="utf-8").splitlines()]

    def rows(self) -> list[dict[str, Any]]:
        """The matrix's rows of this recipe's lane that name a recipe."""
        finished = self.run("matrix", "--json")
        assert finished.returncode == 0, finished.stderr
        return [row for row in json.loads(finished.stdout)["rows"] if row["recipe"]]
