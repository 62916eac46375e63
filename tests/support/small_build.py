"""A checkout whose llama.cpp and worker are a few lines each: what the tests of builds work on, with the real tools.

The small upstream has the options and targets of the real one that the CPU lane uses, with upstream's own defaults, all of which
are wrong for the lane. A configure and a build take seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from upstream_checkout import Checkout, commit_all

from dgrctl.errors import DgrError
from dgrctl.lanes.build import BuildResult, build
from dgrctl.lanes.device import detect
from dgrctl.layout import Layout
from dgrctl.upstream.fetch import fetch
from dgrctl.upstream.git import run_git
from dgrctl.upstream.stack import apply

UPSTREAM = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.14)
project("llama.cpp" C CXX)
option(BUILD_SHARED_LIBS "" ON)
add_subdirectory(ggml)
add_library(llama src/llama.cpp)
target_include_directories(llama PUBLIC src)
target_link_libraries(llama PUBLIC ggml-cpu)
""",
    "ggml/CMakeLists.txt": """project("ggml" C CXX ASM)
option(GGML_NATIVE "" ON)
option(GGML_OPENMP "" ON)
foreach(name SSE42 AVX AVX2 BMI2 FMA F16C AVX512)
  option(GGML_${name} "" OFF)
endforeach()
set(GGML_CPU_ARM_ARCH "" CACHE STRING "")
set(ARCH_FLAGS "")
if(GGML_NATIVE)
  list(APPEND ARCH_FLAGS -march=native)
elseif(GGML_CPU_ARM_ARCH)
  list(APPEND ARCH_FLAGS -march=${GGML_CPU_ARM_ARCH})
endif()
foreach(pair SSE42:-msse4.2 AVX:-mavx AVX2:-mavx2 BMI2:-mbmi2 FMA:-mfma F16C:-mf16c AVX512:-mavx512f AVX512:-mavx512cd
        AVX512:-mavx512vl AVX512:-mavx512dq AVX512:-mavx512bw)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 flag)
  if(GGML_${name})
    list(APPEND ARCH_FLAGS ${flag})
  endif()
endforeach()
add_library(ggml-cpu src/ggml-cpu/ggml-cpu.c src/ggml-cpu/ops.cpp)
target_compile_options(ggml-cpu PRIVATE ${ARCH_FLAGS})
if(GGML_OPENMP)
  target_compile_definitions(ggml-cpu PRIVATE GGML_USE_OPENMP)
endif()
""",
    "ggml/src/ggml-cpu/ggml-cpu.c": "const char * ggml_file(void) { return __FILE__; }\n",
    "ggml/src/ggml-cpu/ops.cpp": "int ggml_ops() { return 1; }\n",
    "src/llama.h": "const char * llama_file();\n",
    "src/llama.cpp": '#include "llama.h"\nextern "C" const char * ggml_file(void);\n'
    "const char * llama_file() { return ggml_file(); }\n",
}

OWN = {
    "worker/CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(dgr LANGUAGES C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_subdirectory(${DGR_LLAMA_SOURCE} llama EXCLUDE_FROM_ALL)
add_executable(dgr-${DGR_ROLE} main.cpp identity.cpp)
target_link_libraries(dgr-${DGR_ROLE} PRIVATE llama)
target_compile_definitions(dgr-${DGR_ROLE} PRIVATE DGR_STACK="${DGR_STACK}" DGR_ISA="${DGR_ISA}")
if(DGR_TESTS)
  add_executable(dgr-worker-tests test.cpp)
endif()
""",
    "worker/main.cpp": """#include <cstdio>
#include "llama.h"
const char* Identity();
int main() { std::printf("%s %s %s\\n", Identity(), llama_file(), __FILE__); }
""",
    "worker/identity.cpp": 'const char* Identity() { return DGR_ISA " " DGR_STACK; }\n',
    "worker/test.cpp": "int main() { return 0; }\n",
    "proto/dgr/v1/common.proto": 'syntax = "proto3";\n',
}

# What it needs is written into it, since a build's environment is its own. Opening a pipe waits for the other side.
_STOPPING_COMPILER = """#!/bin/sh
case "$*" in *{file}*) [ -e {folder}/once ] || {{ : > {folder}/once; : > {folder}/stopped; : > {folder}/go; }};; esac
exec {compiler} "$@"
"""


class SmallBuild(Checkout):
    """A checkout that was fetched and patched, with nothing built."""

    def __init__(
        self, folder: Path, upstream: dict[str, str] | None = None, *, like: SmallBuild | None = None, name: str = "checkout"
    ) -> None:
        """Makes it in ``folder / name``.

        Args:
            upstream: Files of the small llama.cpp that are other than usual.
            like: Pin the same commit as this one.
        """
        self._open(folder)
        self.layout = Layout(folder / name)
        if like is not None:
            shutil.copytree(like.upstream.folder, self.upstream.folder)
        else:
            run_git("init", "--quiet", "--template=", str(self.upstream.folder), raises=DgrError)
            self.upstream.run("config", "uploadpack.allowAnySHA1InWant", "true")
            _write(self.upstream.folder, UPSTREAM | (upstream or {}))
            commit_all(self.upstream, "Small llama.cpp")
        _write(self.layout.root, OWN)
        self.write_manifest(self.git_transport())
        self.write_empty_series()
        fetch(self.layout)
        apply(self.layout)

    @staticmethod
    def upstream_file(name: str) -> str:
        """A file of the small llama.cpp."""
        return UPSTREAM[name]

    @staticmethod
    def own_sources() -> dict[str, str]:
        """``worker/`` and ``proto/`` as they were at first."""
        return dict(OWN)

    def write(self, name: str, text: str) -> None:
        """Writes a file of the checkout."""
        _write(self.layout.root, {name: text})

    def build(self, *roles: str, force: bool = False, isa: str | None = None) -> BuildResult:
        """Builds the named roles, or all."""
        return build(self.layout, "cpu", force=force, isa=isa, **({"roles": roles} if roles else {}))  # type: ignore[arg-type]

    def run_build(self, *arguments: str, step: str = "0", **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs ``dgrctl build`` to its end, or kills it before ``step``."""
        return self.run("build", "--lane", "cpu", *arguments, step=step, **environment)

    def start_build(self, **environment: str) -> subprocess.Popen[str]:
        """Starts ``dgrctl build``; its stderr is a pipe."""
        command = self.command("build", "--lane", "cpu")
        return subprocess.Popen(command, env=self.environment(**environment), stderr=subprocess.PIPE, text=True)

    def output(self, program: str) -> str:
        """What the built ``program`` prints."""
        (path,) = self.layout.builds.glob(f"folders/*/bin/{program}")
        return subprocess.run([path], capture_output=True, text=True, check=True).stdout


class StoppingCompiler:
    """A C++ compiler that stops once, before it compiles a file, until it is let go."""

    def __init__(self, folder: Path, file: str) -> None:
        folder.mkdir()
        self.program = folder / "c++"
        self.program.write_text(_STOPPING_COMPILER.format(file=file, folder=folder, compiler=shutil.which("c++")))
        self.program.chmod(0o755)
        self._stopped, self._go = folder / "stopped", folder / "go"
        os.mkfifo(self._stopped)
        os.mkfifo(self._go)

    def wait_until_stopped(self) -> None:
        self._stopped.read_bytes()

    def let_go(self) -> None:
        self._go.read_bytes()


def other_level() -> str:
    """An ISA level that this machine runs but does not choose."""
    return "x86-64-v1" if detect("cpu").isa.startswith("x86") else "armv8-a"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
