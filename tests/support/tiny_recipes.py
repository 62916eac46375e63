"""Recipes for tests: a good one as text, to be bent."""

from __future__ import annotations

from pathlib import Path

from small_models import MODEL_ID

NAME = "tiny.cpu-2stage"

GOOD = f"""\
schema = 1
name = "{NAME}"
model = "{MODEL_ID}"
lane = "cpu"

[placement]
stages = 2

[boundary]
wire = "f32"

[execution]
threads = 2
context = 128
sessions = 4
ubatch = 32
flash_attention = true
kv_type_k = "f16"
kv_type_v = "f16"
prefill_window = 1
"""


def write_recipe(folder: Path, *edits: tuple[str, str]) -> Path:
    """The good recipe in ``folder`` with each edit (old text, new text) made; old text that is not there fails the test."""
    text = GOOD
    for old, new in edits:
        assert old in text, f"{old!r} is not in the recipe"
        text = text.replace(old, new, 1)
    path = folder / f"{NAME}.toml"
    path.write_text(text)
    return path
