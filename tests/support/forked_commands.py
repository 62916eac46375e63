"""dgrctl in a process of its own that starts at once: forked from a server that has loaded it already.

Most of what a short command takes is the start of an interpreter. What the environment says about language and encoding is read
at that start, so a test of those runs a program of its own instead.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import model_program

_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = ("fetch", "patch", "build", "model")
_NEEDED = ("upstream.fetch", "upstream.stack", "lanes.build", "artifacts.provision", "artifacts.synth.make", "report.patch_text")
_CONTEXT.set_forkserver_preload(
    ["forked_commands", *(f"dgrctl.cli.{name}" for name in _LOADED), *(f"dgrctl.{name}" for name in _NEEDED)]
)


def run_forked(
    mode: str, step: str, arguments: Sequence[str], environment: Mapping[str, str], *, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Like :mod:`model_program` run with these arguments in this environment; a negative return code is a signal.

    Args:
        seconds: Kill it after that time.
    """
    with tempfile.TemporaryDirectory(prefix="dgr-forked.") as folder:
        process = _CONTEXT.Process(target=_work, args=(folder, mode, step, list(arguments), dict(environment)))
        process.start()
        process.join(seconds)
        process.kill()
        process.join()
        code = process.exitcode
        process.close()
        output, errors = (Path(folder, name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    assert code is not None
    return subprocess.CompletedProcess(list(arguments), code, output, errors)


def _work(folder: str, mode: str, step: str, arguments: list[str], environment: dict[str, str]) -> None:
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dgrctl", mode, step, *arguments]
    model_program.run(mode, step, arguments)
