"""Running ``dgrctl model`` on a tiny model in a process of its own, with pip and without any network."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from small_models import MODEL_ID, TinyModel

PROGRAM = Path(__file__).with_name("model_program.py")

Completed = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Puller:
    """A tiny model, and the environment in which it is pulled: packages come from ``index`` alone."""

    tiny: TinyModel
    index: str
    storage: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DGR_", "PIP_"))}
        return kept | {
            "DGR_ROOT": str(self.tiny.layout.root),
            "DGR_STORAGE": str(self.storage),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.index,
            "PIP_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
        }

    @property
    def folder(self) -> Path:
        return self.storage / MODEL_ID

    def command(self, *arguments: str, mode: str = "kill", step: str = "0") -> list[str]:
        """``dgrctl model ARGUMENTS…``, to which ``mode`` happens before ``step`` (0: never)."""
        return [sys.executable, str(PROGRAM), mode, step, "model", *arguments]

    def run(self, *arguments: str, mode: str = "kill", step: str = "0") -> Completed:
        """To its end."""
        return subprocess.run(
            self.command(*arguments, mode=mode, step=step),
            capture_output=True,
            text=True,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def pull(self, *options: str, mode: str = "kill", step: str = "0") -> Completed:
        return self.run("pull", MODEL_ID, *options, mode=mode, step=step)

    def whole(self) -> bool:
        """Whether the storage holds exactly the model's parts, and nothing else that a pull makes."""
        found = {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        return found == self.tiny.parts and len(list(self.folder.iterdir())) == len(found)
