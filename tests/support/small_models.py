"""Small real files for tests: GGUF models of a few kilobytes, wheels that carry them, checkouts with manifests.

The GGUF files are written by the ``gguf`` package, so that dgrctl's own reader is held against another writer.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.layout import Layout

MODEL_ID = "tiny-f32"
WIDTH = 8
VOCABULARY = 16


def write_gguf(path: Path, *, layers: int = 4, tied: bool = True, architecture: str = "llama") -> Path:
    """A model of ``layers`` layers with the tensors and pairs that the inventory looks at; the numbers are arbitrary."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(256)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {index}" for index in range(VOCABULARY)])
    for name, tensor in tensors(layers, tied).items():
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


def write_wheel(folder: Path, members: dict[str, bytes], *, distribution: str = "tiny-model", version: str = "1.0") -> Wheel:
    """A valid wheel with ``members`` (path inside it: bytes), deflated."""
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
    for folder in ("manifests/upstream", "manifests/models", "recipes"):
        (root / folder).mkdir(parents=True)
    return Layout(root)


@dataclass(frozen=True)
class TinyModel:
    """A model with a manifest in a checkout of its own, its one part inside a wheel that pip finds in ``links``."""

    layout: Layout
    links: Path
    wheel: Wheel
    part: bytes
    part_name: str
    manifest: Path

    @property
    def folder(self) -> Path:
        """Where the default storage keeps it."""
        return self.layout.default_storage / MODEL_ID

    @property
    def stored(self) -> Path:
        return self.folder / self.part_name

    def put(self) -> None:
        """Stores the part as a pull would."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.stored.write_bytes(self.part)


def make_tiny_model(root: Path, *, filler: int = 0) -> TinyModel:
    """Makes a checkout at ``root`` with one tiny model.

    Args:
        filler: Bytes of zeros appended to the part, which the wheel packs to almost nothing.
    """
    layout = make_checkout(root)
    built = write_gguf(root / "tiny.gguf")
    header = read_header(built)
    part = built.read_bytes() + bytes(filler)
    part_name = "tiny.gguf"
    wheel = write_wheel(root / "links", {f"tiny_model/{part_name}": part})
    manifest = layout.model_manifests / f"{MODEL_ID}.toml"
    manifest.write_text(
        manifest_text(
            parts=[(part_name, len(part), hashlib.sha256(part).hexdigest())],
            wheel=wheel,
            tokenizer_sha256=header.tokenizer_sha256 or "",
        )
    )
    return TinyModel(layout, root / "links", wheel, part, part_name, manifest)


def manifest_text(*, parts: list[tuple[str, int, str]], wheel: Wheel, tokenizer_sha256: str, model_id: str = MODEL_ID) -> str:
    """A model manifest whose parts all come from ``wheel``."""
    lines = [
        "schema = 1",
        f'id = "{model_id}"',
        'title = "A tiny model"',
        'license = "Apache-2.0"',
        'architecture = "llama"',
        "layer_count = 4",
        'quantisation = "F32"',
        f'tokenizer_sha256 = "{tokenizer_sha256}"',
    ]
    for name, size, digest in parts:
        lines += ["[[parts]]", f'name = "{name}"', f"size = {size}", f'sha256 = "{digest}"']
    members = ", ".join(f'{{ part = "{name}", path = "tiny_model/{name}" }}' for name, _, _ in parts)
    lines += [
        "[[sources]]",
        'kind = "pypi-wheel"',
        f'distribution = "{wheel.distribution}"',
        f'version = "{wheel.version}"',
        f'wheel = "{wheel.path.name}"',
        f"size = {wheel.size}",
        f'sha256 = "{wheel.sha256}"',
        f"members = [{members}]",
    ]
    return "\n".join(lines) + "\n"
