"""What CMake says it chose, and the refusal of a build that came out as something else."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dgrctl.errors import BuildError
from dgrctl.lanes.cmake import Compiler, Outcome, read_outcome
from dgrctl.lanes.cpu import backend_flags, check_outcome, cmake_options
from dgrctl.lanes.isa import level

V3 = level("x86-64-v3", "x86_64")
OPTIONS = cmake_options(V3)
BACKEND = "/at/source/llama.cpp/ggml/src/ggml-cpu/ops.cpp"
COMMANDS = {
    BACKEND: ["c++", "-O3", "-DNDEBUG", "-ffile-prefix-map=/at/=", "-I/at", *sorted(V3.compiler_flags), "-c", BACKEND],
    "/at/source/llama.cpp/ggml/src/ggml-cpu/quants.c": ["cc", "-O3", "-DNDEBUG", "-std=gnu11", *sorted(V3.compiler_flags)],
    "/at/source/worker/main.cpp": ["c++", "-O3", "-std=c++20", "-c", "main.cpp"],
}
RIGHT = Outcome(OPTIONS, {"CXX": Compiler("/usr/bin/c++", "GNU", "12.2.0")}, COMMANDS)


def _with(file: str, *words: str, less: str = "") -> Outcome:
    command = [word for word in COMMANDS[file] if word != less]
    return dataclasses.replace(RIGHT, commands={**COMMANDS, file: [*command, *words]})


def test_a_build_as_asked_for_passes() -> None:
    check_outcome(RIGHT, V3, OPTIONS)
    assert backend_flags(RIGHT) == sorted(["-DNDEBUG", "-O3", *V3.compiler_flags])


@pytest.mark.parametrize("option", ["GGML_NATIVE", "GGML_OPENMP", "GGML_AMX_TILE", "GGML_AVX2", "GGML_CUDA"])
def test_an_option_that_differs_is_named(option: str) -> None:
    wrong = "OFF" if OPTIONS[option] == "ON" else "ON"
    with pytest.raises(BuildError, match=f"option {option} is {wrong}, asked for was {OPTIONS[option]}"):
        check_outcome(dataclasses.replace(RIGHT, options={**OPTIONS, option: wrong}), V3, OPTIONS)
    without = {name: value for name, value in OPTIONS.items() if name != option}
    with pytest.raises(BuildError, match=f"option {option} is absent"):
        check_outcome(dataclasses.replace(RIGHT, options=without), V3, OPTIONS)


@pytest.mark.parametrize("word", ["-march=native", "-mamx-tile", "-mavx512f", "-mtune=native"])
def test_a_machine_flag_too_many_is_named_with_its_file(word: str) -> None:
    with pytest.raises(BuildError, match=word) as refused:
        check_outcome(_with(BACKEND, word), V3, OPTIONS)
    assert refused.value.where == BACKEND


def test_a_machine_flag_too_few() -> None:
    with pytest.raises(BuildError, match="machine flags"):
        check_outcome(_with(BACKEND, less="-mfma"), V3, OPTIONS)


def test_code_that_must_run_everywhere_has_no_machine_flags() -> None:
    with pytest.raises(BuildError, match="machine flags is -mavx2, asked for was none"):
        check_outcome(_with("/at/source/worker/main.cpp", "-mavx2"), V3, OPTIONS)


@pytest.mark.parametrize("word", ["-fopenmp", "-fopenmp=libomp", "-DGGML_USE_OPENMP"])
def test_openmp_that_slipped_in(word: str) -> None:
    with pytest.raises(BuildError, match="OpenMP"):
        check_outcome(_with(BACKEND, word), V3, OPTIONS)


def test_a_build_without_the_cpu_backend() -> None:
    commands = {file: command for file, command in COMMANDS.items() if "ggml-cpu" not in file}
    with pytest.raises(BuildError, match="compiles no CPU backend"):
        check_outcome(dataclasses.replace(RIGHT, commands=commands), V3, OPTIONS)


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """A folder as CMake 3.25 leaves it, with two indexes of which the second is newer."""
    reply = tmp_path / ".cmake/api/v1/reply"
    reply.mkdir(parents=True)
    cache = {"kind": "cache", "entries": [{"name": "GGML_NATIVE", "value": "OFF", "type": "BOOL", "properties": []}]}
    compiler = {"path": "/usr/bin/cc", "id": "GNU", "version": "12.2.0", "implicit": {}}
    languages = [{"language": language, "compiler": compiler, "sourceFileExtensions": ["c"]} for language in ("C", "CXX")]
    assembler = {"language": "ASM", "compiler": {"path": "/usr/bin/cc", "implicit": {}}}
    chains = {"kind": "toolchains", "toolchains": [assembler, *languages]}
    index = {
        "reply": {
            "client-dgrctl": {
                "query.json": {
                    "responses": [
                        {"kind": "cache", "jsonFile": "cache-v2-1.json"},
                        {"kind": "toolchains", "jsonFile": "toolchains-v1-1.json"},
                    ]
                }
            }
        }
    }
    _write(reply / "cache-v2-1.json", cache)
    _write(reply / "toolchains-v1-1.json", chains)
    _write(reply / "index-2026-11-29T14-00-00-0001.json", {"reply": {}})
    _write(reply / "index-2026-11-29T14-00-01-0000.json", index)
    database = [{"directory": "/b", "command": 'cc -DX="a b" -c /s/a.c', "file": "/s/a.c", "output": "a.o"}]
    _write(tmp_path / "compile_commands.json", database)
    return tmp_path


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document))


def test_reading_what_cmake_chose(answered: Path) -> None:
    outcome = read_outcome(answered)
    assert outcome.options == {"GGML_NATIVE": "OFF"}
    assert outcome.compilers == dict.fromkeys(("C", "CXX"), Compiler("/usr/bin/cc", "GNU", "12.2.0"))
    assert outcome.commands == {"/s/a.c": ["cc", "-DX=a b", "-c", "/s/a.c"]}


def _edit(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    _write(path, document)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("compile_commands.json", None),
        ("compile_commands.json", b"["),
        ("compile_commands.json", b'[{"file": "a.c"}]'),
        ("compile_commands.json", b"7"),
        ("compile_commands.json", b"""[{"file": "a.c", "command": "unbalanced '"}]"""),
        (".cmake/api/v1/reply/cache-v2-1.json", None),
        (".cmake/api/v1/reply/cache-v2-1.json", b'{"entries": 3}'),
        (".cmake/api/v1/reply/toolchains-v1-1.json", b'{"toolchains": [{"language": "C", "compiler": {}}]}'),
        (".cmake/api/v1/reply/toolchains-v1-1.json", b"\xff"),
        (".cmake/api/v1/reply/index-2026-11-29T14-00-01-0000.json", b'{"reply": {"client-dgrctl": {"error": "no"}}}'),
    ],
)
def test_an_account_that_cannot_be_read_is_refused(answered: Path, file: str, content: bytes | None) -> None:
    if content is None:
        (answered / file).unlink()
    else:
        (answered / file).write_bytes(content)
    with pytest.raises(BuildError, match="CMake's account of the build cannot be read"):
        read_outcome(answered)


def test_a_folder_that_was_never_configured(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be read"):
        read_outcome(tmp_path)


def test_an_answer_of_another_kind(answered: Path) -> None:
    index = answered / ".cmake/api/v1/reply/index-2026-11-29T14-00-01-0000.json"
    _edit(index, lambda document: document["reply"]["client-dgrctl"]["query.json"]["responses"].pop())
    with pytest.raises(BuildError, match="cannot be read"):
        read_outcome(answered)
