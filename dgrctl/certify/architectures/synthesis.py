"""Small random models of every architecture, by upstream's own generator (tests/test-llama-archs.cpp).

The generator is built from the untouched tree beside the reference, with more layers than upstream gives most models, so that a
route has stages between head and tail; upstream's own form serves where a fixture does not stretch. It draws every
weight from the seed and the tensor's name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dgrctl.errors import InputError
from dgrctl.files import sha256_file, storage_errors
from dgrctl.layout import Layout
from dgrctl.offspring import marked

SEED = 1
_SECONDS = 300  # a generator that hangs is a finding, not a wait
_NAME = re.compile(r'^\s*\{\s*LLM_ARCH_\w+,\s*"([^"]+)"\s*\},', re.MULTILINE)
# In upstream's table, but no model's name.
_UNKNOWN = "(unknown)"


@dataclass(frozen=True)
class Synthesised:
    """The models made of one architecture, dense and of experts; ``problem`` says why there is none."""

    models: tuple[Path, ...]
    problem: str = ""


def architecture_names(layout: Layout) -> list[str]:
    """Every architecture that the pin knows, sorted.

    Raises:
        InputError: upstream's table was not found where it was.
    """
    table = layout.pristine / "src" / "llama-arch.cpp"
    with storage_errors(table):
        text = table.read_text(encoding="utf-8")
    begin = text.find("LLM_ARCH_NAMES = {")
    names = sorted(set(_NAME.findall(text[begin : text.find("\n};", begin)])) - {_UNKNOWN}) if begin >= 0 else []
    if not names:
        raise InputError(
            "upstream's table of architectures is not where it was", where=str(table), remedy="teach synthesis.py its new form"
        )
    return names


def synthesise(layout: Layout, programs: Sequence[Path], name: str) -> Synthesised:
    """Makes the models of the architecture ``name``, or finds those that the same program made before.

    Args:
        programs: Generators, in the order tried; the last one that fails says why.

    Raises:
        StorageError: the disk is full.
    """
    made = Synthesised((), "there is no generator")
    for program in programs:
        store = layout.state / "architectures" / sha256_file(program)[:16] / f"{name}-{SEED}"
        with storage_errors(store):
            if not store.is_dir():
                store.parent.mkdir(parents=True, exist_ok=True)
                _make(program, name, store)
            models = tuple(sorted(store.glob("*.gguf")))
            made = Synthesised(models, "" if models else (store / "problem").read_text(encoding="utf-8"))
        if made.models:
            break
    return made


def _make(program: Path, name: str, store: Path) -> None:
    """Fills ``store`` in one step: a kill leaves nothing that would be taken for it."""
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=store.parent) as folder:
        making = Path(folder) / "models"
        making.mkdir()
        command = [str(program), "-a", f"^{re.escape(name)}$", "-s", str(SEED), "-v", "3", "-o", str(making)]
        try:
            done = subprocess.run(command, env=marked(os.environ), capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            problem = f"upstream's generator did not end within {_SECONDS} s"
        else:
            output = (done.stdout + done.stderr).decode(errors="replace")
            problem = _problem(done.returncode, output)
        if problem:
            for model in making.glob("*.gguf"):
                model.unlink()
        if not any(making.glob("*.gguf")):
            (making / "problem").write_text(problem or "upstream's generator makes no model of it", encoding="utf-8")
        shutil.move(making, store)


def _problem(returncode: int, output: str) -> str:
    if returncode == 0:
        return ""
    words = [line.strip() for line in output.splitlines() if line.strip()]
    last = next((line for line in reversed(words) if "error" in line.lower() or "assert" in line.lower()), "")
    how = f"signal {-returncode}" if returncode < 0 else f"code {returncode}"
    # Times and paths differ from run to run and from checkout to checkout.
    told = re.sub(r"^[0-9.]+ [A-Z] ", "", re.sub(r"^.*/(?=[^/ ]+:\d)", "", last))
    return f"upstream's generator ended with {how}: {told[:200]}"
