"""A single GGUF file that nobody published, as a model that programs can be started with."""

from __future__ import annotations

from pathlib import Path

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.artifacts.local import LocalModel
from dgrctl.artifacts.manifest import ModelManifest, Part
from dgrctl.files import sha256_file


def local_model(path: Path) -> LocalModel:
    """The model ``path``, hashed; sizes by layer are not taken, since nothing places it.

    Raises:
        InputError: it is no GGUF file.
    """
    header = read_header(path)
    architecture = str(header.metadata.get("general.architecture"))
    part = Part(name=path.name, size=path.stat().st_size, sha256=sha256_file(path))
    manifest = ModelManifest(
        schema=1,
        id=path.stem.lower(),
        title=path.stem,
        license="synthesised",
        architecture=architecture,
        layer_count=1,
        quantisation="F32",
        tokenizer_sha256="0" * 64,
        parts=(part,),
        sources=(),
    )
    return LocalModel(
        manifest=manifest,
        parts=(path,),
        set_digest=manifest.set_digest,
        architecture=architecture,
        context_length=0,
        layer_bytes=(),
        head_bytes=0,
        tail_bytes=0,
    )
