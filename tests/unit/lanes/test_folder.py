"""Build folders with a small CMake and Ninja: what stands when a build fails, and what replaces it when the build is whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dgrctl.errors import BuildError
from dgrctl.lanes.folder import Workbench, make
from dgrctl.lanes.isa import level
from dgrctl.lanes.plan import Plan, Sources, plan
from dgrctl.lanes.toolchain import BUILD, Found, Toolchain
from dgrctl.layout import Layout

SOURCES = Sources(pin="0c" * 20, upstream_tree="0d" * 20, patched_tree="0e" * 20, stack_digest="ab" * 32, own="cd" * 32)
ISA = level("x86-64-v1", "x86_64")

# Writes the answers that CMake gives, for the options that it was asked for.
CMAKE = f"""#!{sys.executable}
import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-B") + 1])
options = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("-D"))
reply = folder / ".cmake/api/v1/reply"
reply.mkdir(parents=True, exist_ok=True)
compiler = {{"path": "/usr/bin/cc", "id": "GNU", "version": "12.2.0"}}
answers = {{
    "cache": {{"entries": [{{"name": name, "value": value}} for name, value in options.items()]}},
    "toolchains": {{"toolchains": [{{"language": name, "compiler": compiler}} for name in ("C", "CXX")]}},
}}
for kind, answer in answers.items():
    (reply / f"{{kind}}.json").write_text(json.dumps(answer))
responses = [{{"kind": kind, "jsonFile": f"{{kind}}.json"}} for kind in answers]
index = {{"reply": {{"client-dgrctl": {{"query.json": {{"responses": responses}}}}}}}}
(reply / "index-1.json").write_text(json.dumps(index))
command = {{"command": "cc -O3 {" ".join(sorted(ISA.compiler_flags))} -c ops.c", "file": "/s/ggml/src/ggml-cpu/ops.c"}}
(folder / "compile_commands.json").write_text(json.dumps([command]))
"""
# Links what the file "text" beside it holds; fails if there is none.
NINJA = f"""#!{sys.executable}
import pathlib, sys
folder, text = pathlib.Path(sys.argv[2]), pathlib.Path(__file__).with_name("text")
if not text.exists():
    sys.exit(1)
(folder / "bin").mkdir(exist_ok=True)
(folder / "bin" / sys.argv[-1]).write_text(text.read_text())
"""


class Bench:
    """A checkout whose programs are texts."""

    def __init__(self, root: Path) -> None:
        self.text = root / "tools" / "text"
        self.text.parent.mkdir()
        for name, script in (("cmake", CMAKE), ("ninja", NINJA)):
            (root / "tools" / name).write_text(script)
            (root / "tools" / name).chmod(0o755)
        tools = Toolchain({item.name: Found(item, "1.2.3", root / "tools" / item.name) for item in BUILD})
        layout = Layout(root / "checkout")
        self.bench = Workbench(layout, tools, ISA, "cpu", ())
        self.plan: Plan = plan(layout, "reference", lane="cpu", isa=ISA, sources=SOURCES, tools=tools)
        self.program = self.plan.folder / "bin" / self.plan.program

    def make(self, text: str | None, *, anew: bool = False) -> None:
        """Builds a program that holds ``text``; None fails."""
        self.text.unlink(missing_ok=True)
        if text is not None:
            self.text.write_text(text)
        make(self.bench, self.plan, SOURCES.own, anew=anew)

    def folders(self) -> list[str]:
        return [path.name for path in self.plan.folder.parent.iterdir()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("anew", [False, True])
def test_a_build_that_fails_leaves_the_old_program(bench: Bench, anew: bool) -> None:
    bench.make("first")
    with pytest.raises(BuildError):
        bench.make(None, anew=anew)
    assert bench.program.read_text() == "first"
    bench.make("second", anew=anew)
    assert bench.program.read_text() == "second"
    assert bench.folders() == [bench.plan.folder.name]


def test_a_folder_that_must_be_configured_anew_keeps_its_program_until_then(bench: Bench) -> None:
    bench.make("first")
    (bench.plan.folder / "configured").unlink()
    with pytest.raises(BuildError):
        bench.make(None)
    assert bench.program.read_text() == "first"


def test_the_compile_path_leads_to_the_folder_that_replaced_the_old_one(bench: Bench) -> None:
    bench.make("first")
    bench.make("second", anew=True)
    at = bench.bench.layout.builds / "at" / "cpu" / "bin" / bench.plan.program
    assert at.read_text() == "second"
