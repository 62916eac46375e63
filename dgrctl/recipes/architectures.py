"""The roster: which architectures of the pin can be split into stages, as runs have shown. Written by ``dgrctl arch certify``.

It is bound to the pin and the patch stack that it was made with: for any other it says nothing, and nothing is allowed. The
worker is compiled with the same file (``worker/engine/architectures.json``) and refuses what it does not allow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgrctl.artifacts.manifest import ModelManifest
from dgrctl.documents import load_json
from dgrctl.errors import InputError
from dgrctl.files import write_atomic
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import Recipe

# certified: every interior cut of a synthesised model is bit-identical to the whole.
# restricted: the same but for cuts that the engine refuses by name, because a layer needs what another one computed.
# unsupported: it cannot be split, or nobody could make a model to prove it with.
# not a decoder: it has no state that a stage could own (encoders, diffusion models).
Status = Literal["certified", "restricted", "unsupported", "not a decoder"]
SPLITTABLE: frozenset[Status] = frozenset({"certified", "restricted"})

Count = Annotated[int, msgspec.Meta(ge=0)]


class Architecture(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One row.

    Attributes:
        name: As GGUF files give it in ``general.architecture``.
        cuts: Interior cuts that were run, over all models synthesised of it.
        logits: Values that were compared with the unpatched whole model, bit by bit; of a splittable one none differs.
        reason: Why it is not certified; empty if it is.
    """

    name: str
    status: Status
    cuts: Count
    logits: Count
    reason: str


class Roster(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """All architectures of one pin, by name, with one stack applied."""

    schema: Literal[1]
    pin: str
    stack_digest: str
    architectures: tuple[Architecture, ...]

    @property
    def splittable(self) -> list[str]:
        """Names of the architectures that can be split."""
        return [row.name for row in self.architectures if row.status in SPLITTABLE]

    def refusal(self, name: str) -> str | None:
        """Why a model of the architecture ``name`` cannot be split, in words; None if it can."""
        row = next((row for row in self.architectures if row.name == name), None)
        if row is None:
            return f"the architecture {name!r} is not on the roster"
        return None if row.status in SPLITTABLE else f"the architecture {name!r} is {row.status}: {row.reason}"


def roster_path(layout: Layout) -> Path:
    """Where the roster lies: among the worker's sources, which are compiled with it."""
    return layout.root / "worker" / "engine" / "architectures.json"


def load_roster(layout: Layout) -> Roster:
    """Reads the roster.

    Raises:
        InputError: it is missing or malformed.
    """
    try:
        return load_json(roster_path(layout), Roster, what="roster")
    except InputError as error:
        raise InputError(error.what, where=error.where, remedy="git checkout -- worker/engine restores it") from error


def require_splittable(layout: Layout, recipe: Recipe, manifest: ModelManifest) -> None:
    """Refuses a recipe whose model's architecture the roster does not allow, before the model is pulled or hashed.

    Raises:
        InputError: names the recipe's file, the architecture and its row.
    """
    roster = load_roster(layout)
    refusal = roster.refusal(manifest.architecture)
    if refusal is not None:
        raise InputError(
            f"{manifest.id} cannot be split: {refusal}",
            where=f"{recipe.name}.toml: model",
            remedy="use a model of an architecture that can be; dgrctl arch list names them",
        )


def save_roster(layout: Layout, roster: Roster) -> None:
    """Writes the roster, a row a line, so that a diff shows what changed.

    Raises:
        StorageError: the disk is full or read-only; the old one stands.
    """
    lines = ",\n".join(f"    {msgspec.json.encode(row).decode()}" for row in roster.architectures)
    text = (
        f'{{\n  "schema": {roster.schema},\n  "pin": "{roster.pin}",\n  "stack_digest": "{roster.stack_digest}",\n'
        f'  "architectures": [\n{lines}\n  ]\n}}\n'
    )
    write_atomic(roster_path(layout), text.encode())
