"""Generates the Python side of the wire contract, ``dgrctl/wire/dgr/v1``, from ``proto/``.

Runs as hatchling's build hook when the package is built or installed, and as a program (``python hatch_build.py``) when only
``proto/`` changed. Messages are written with their types by protoc; the types of the service stubs come from mypy-protobuf.
"""

from __future__ import annotations

import importlib.resources
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "dgr"
_VERSION = "v1"


class WireContractHook(BuildHookInterface[Any]):
    """hatchling's entry point; it finds the class by its base."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generates before files are collected, and has them collected although git ignores them."""
        del version  # "standard" and "editable" installs need the same files
        generated = generate(Path(self.root))
        build_data["artifacts"].append(f"/{generated.relative_to(self.root).as_posix()}/")


def generate(root: Path) -> Path:
    """Writes ``root/dgrctl/wire/dgr``, all of it or nothing, and returns that folder.

    Raises:
        RuntimeError: protoc refused the contract; its own message went to stderr.
    """
    target = root / "dgrctl" / "wire" / _PACKAGE
    with tempfile.TemporaryDirectory(prefix=".generating-", dir=target.parent) as temporary:
        _run_protoc(root / "proto", Path(temporary))
        package = Path(temporary) / _PACKAGE
        for folder in (package, package / _VERSION):
            (folder / "__init__.py").write_text('"""Generated from proto/ by hatch_build.py."""\n', encoding="utf-8")
        if target.exists():
            target.rename(Path(temporary) / "replaced")
        package.rename(target)
    return target


def _run_protoc(protos: Path, output: Path) -> None:
    from grpc_tools import protoc  # noqa: PLC0415 - absent when hatchling only reads this file for metadata

    sources = sorted(str(path.relative_to(protos)) for path in protos.rglob("*.proto"))
    if not sources:
        raise RuntimeError(f"no .proto file under {protos}")
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={protos}",
        f"--proto_path={well_known}",
        f"--plugin=protoc-gen-mypy_grpc={_program('protoc-gen-mypy_grpc')}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_grpc_out=quiet:{output}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc refused the wire contract; its message stands above")


def _program(name: str) -> str:
    """A program of the environment that runs this file, which need not be on PATH."""
    path = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if path is None:
        raise RuntimeError(f"{name} is not installed beside {sys.executable}")
    return path


if __name__ == "__main__":
    print(f"generated {generate(Path(__file__).resolve().parent)}", file=sys.stderr)
