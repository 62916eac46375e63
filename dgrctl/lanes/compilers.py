"""Which compilers CC and CXX name: the compiler itself, never ccache in front of it, and one version for both languages.

This module needs no Python package: the Makefile uses it before any Python package is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from dgrctl.offspring import marked

_CCACHE = "ccache"
# Both compilers answer this with their predefined macros; __VERSION__ names version and family.
_MACROS = ("-E", "-dM", "-x", "c", os.devnull)
_VERSION = re.compile(r'^#define __VERSION__ "(.*)"$', re.MULTILINE)


def find_compiler(setting: str) -> Path:
    """The compiler that ``setting``, a value of CC or CXX, names.

    The build runs ccache itself. So ``ccache gcc`` means gcc, and a link to ccache that is named like a compiler
    (/usr/lib/ccache/gcc) means the next program of that name on PATH.

    Raises:
        LookupError: there is none, or the setting holds options.
    """
    try:
        words = shlex.split(setting)
    except ValueError as error:
        raise LookupError("has a quotation mark without its other half") from error
    if len(words) > 1 and Path(words[0]).name == _CCACHE:
        words = words[1:]
    if len(words) != 1:
        raise LookupError("names a compiler with options; a build takes only the compiler")
    found = shutil.which(words[0])
    if found is None:
        raise LookupError("is not on PATH")
    if not _is_ccache(found):
        return Path(found).absolute()
    name = Path(found).name
    for folder in os.get_exec_path():
        behind = shutil.which(name, path=folder)
        if behind is not None and not _is_ccache(behind):
            return Path(behind)
    raise LookupError(f"is {found}, a link to ccache, and PATH has no compiler {name} behind it")


def compiler_version(compiler: Path) -> str:
    """Family and version, such as ``GCC 12.2.0`` or ``Debian Clang 14.0.6``.

    Raises:
        LookupError: it is no compiler of the GCC or Clang family.
    """
    try:
        command = [str(compiler), *_MACROS]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=marked(os.environ))
    except OSError as error:
        raise LookupError(f"{compiler} cannot be run: {error.strerror}") from error
    version = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or version is None:
        raise LookupError(f"{compiler} does not tell its predefined macros; GCC or Clang is needed")
    return version.group(1) if "__clang__" in answer.stdout else f"GCC {version.group(1)}"


def _is_ccache(program: str) -> bool:
    return Path(program).resolve().name == _CCACHE
