"""Target manifests: models that this project aims at and that no machine here holds (``manifests/targets/ID.toml``).

A target says what is publicly known of a model, from where, and what is not known. Its weights cannot be pulled; sizes and
placements are computed from it as from a model that is here.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgrctl.artifacts.deepseek4 import ARCHITECTURE, Dimensions, TensorShape, Use, tensor_shapes
from dgrctl.artifacts.gguf_header import GgufHeader, Scalar, Tensor
from dgrctl.artifacts.gguf_types import TENSOR_TYPES
from dgrctl.artifacts.manifest import ByteCount, ModelId, Sha256, Text
from dgrctl.documents import load_toml
from dgrctl.errors import InputError
from dgrctl.layout import Layout

_TYPES = {name: (block, size) for name, block, size in TENSOR_TYPES.values()}
_Sentence = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Source(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Where some of the numbers come from."""

    what: _Sentence
    where: _Sentence


class OfficialFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One file as the publisher gives it out."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.safetensors$(?!\n)", max_length=200)]
    size: ByteCount
    sha256: Sha256


class TargetManifest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A target. ``types`` says how each tensor is stored as GGUF, by its use; ``unknown`` what could not be found."""

    schema: Literal[1]
    id: ModelId
    title: Text
    license: Text
    architecture: Literal["deepseek4"]
    publisher: Text
    revision: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}$(?!\n)")]
    context_length: Annotated[int, msgspec.Meta(ge=1)]
    window: Annotated[int, msgspec.Meta(ge=1)]
    config_sha256: Sha256
    index_sha256: Sha256
    sources: Annotated[tuple[Source, ...], msgspec.Meta(min_length=1)]
    unknown: tuple[_Sentence, ...]
    dimensions: Dimensions
    types: dict[Use, str]
    files: Annotated[tuple[OfficialFile, ...], msgspec.Meta(min_length=1)]

    @property
    def header(self) -> GgufHeader:
        """What the header of its GGUF set says, as far as sizes depend on it; offsets are not known."""
        sizes = self.dimensions
        tensors = tuple(self._tensor(shape) for shape in tensor_shapes(sizes))
        metadata: dict[str, Scalar] = {
            "general.architecture": ARCHITECTURE,
            f"{ARCHITECTURE}.context_length": self.context_length,
            f"{ARCHITECTURE}.block_count": len(sizes.ratios) + sizes.prediction_layers,
            f"{ARCHITECTURE}.nextn_predict_layers": sizes.prediction_layers,
            f"{ARCHITECTURE}.attention.sliding_window": self.window,
            f"{ARCHITECTURE}.attention.indexer.head_count": sizes.indexer_heads,
            f"{ARCHITECTURE}.embedding_length": sizes.width,
            f"{ARCHITECTURE}.expert_used_count": sizes.active_experts,
            f"{ARCHITECTURE}.hyper_connection.count": sizes.streams,
            "tokenizer.ggml.model": "gpt2",
        }
        return GgufHeader(Path(f"{self.id}.toml"), 3, metadata, tensors, None)

    def _tensor(self, shape: TensorShape) -> Tensor:
        block, size = _TYPES[self.types[shape.use]]
        return Tensor(shape.name, self.types[shape.use], shape.shape, 0, math.prod(shape.shape) // block * size)


def target_ids(layout: Layout) -> list[str]:
    """Ids of all targets, sorted."""
    return sorted(path.stem for path in layout.target_manifests.glob("*.toml"))


def load_target(layout: Layout, target_id: str) -> TargetManifest:
    """The target ``target_id``, which :func:`target_ids` names.

    Raises:
        InputError: its manifest is malformed or contradicts itself.
    """
    path = layout.target_manifests / f"{target_id}.toml"
    target = load_toml(path, TargetManifest, what="target manifest")
    for field, what, remedy in _contradictions(target, path):
        raise InputError(f"this target manifest contradicts itself: {what}", where=f"{path}: {field}", remedy=remedy)
    return target


def _contradictions(target: TargetManifest, path: Path) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    if target.id != path.stem:
        found.append(("id", f"it is called {target.id!r} in a file called {path.name!r}", "make the two equal"))
    for shape in tensor_shapes(target.dimensions):
        named = target.types.get(shape.use)
        if named not in _TYPES:
            found.append((f"types.{shape.use}", f"{shape.name} has the type {named!r}", "name a type of GGUF tensors"))
        elif shape.shape[0] % _TYPES[named][0]:
            what = f"rows of {shape.name} hold {shape.shape[0]} values, and blocks of {named} {_TYPES[named][0]}"
            found.append((f"types.{shape.use}", what, "name a type whose blocks fit"))
    names = [file.name for file in target.files]
    if len(set(names)) != len(names):
        found.append(("files", "a file stands twice", "name each once"))
    return found


def refuse_target(layout: Layout, model_id: str) -> None:
    """Raises InputError if ``model_id`` is a target: nothing of it can be pulled, hashed or run."""
    if model_id not in target_ids(layout):
        return
    target = load_target(layout, model_id)
    raise InputError(
        f"{model_id} is a target, not a model that can be brought here: no GGUF set of it has published hashes",
        where=str(layout.target_manifests / f"{model_id}.toml"),
        detail="\n".join(f"unknown: {text}" for text in target.unknown),
        remedy=(
            f"convert the {len(target.files)} official files of revision {target.revision} with the pin's converter and add a "
            f"model manifest with the parts' hashes; dgrctl recipe place {model_id} computes placements meanwhile"
        ),
    )
