"""``dgrctl patch shell``: a shell, or one command, in the workspace, with whatever would lead git elsewhere taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dgrctl.errors import ToolchainError
from dgrctl.layout import Layout
from dgrctl.upstream.series import load_lock
from dgrctl.upstream.stack import apply
from dgrctl.upstream.workspace import inspect


@dataclass(frozen=True)
class ShellResult:
    """How the workspace is left.

    Attributes:
        exit_code: Of the shell or command.
        head: The workspace's HEAD.
        dirty: Paths that differ from HEAD.
        exported: HEAD is what the patches give, and nothing differs.
    """

    exit_code: int
    head: str
    dirty: tuple[str, ...]
    exported: bool


def shell(layout: Layout, command: Sequence[str] = (), *, quiet: bool = False) -> ShellResult:
    """Runs ``command`` (none: the user's own shell) in the workspace, which is made first where there is none.

    The workspace is not locked meanwhile: export and status are run from inside.

    Args:
        quiet: stdout is somebody else's; what the command writes there goes to stderr.

    Raises:
        ToolchainError: there is no such program.
        DgrError: as :func:`dgrctl.upstream.stack.apply`, where there is no workspace yet.
        PatchError: what was left is no git clone.
    """
    if not inspect(layout).exists:
        apply(layout)
    words = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # The streams behind sys.stdout and sys.stderr, and nothing of ours that is still on its way to them.
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        code = subprocess.run(words, cwd=layout.workspace, env=environment, stdout=2 if quiet else None, check=False).returncode
    except OSError as error:
        raise ToolchainError(
            f"this program cannot be run: {error.strerror}", where=words[0], remedy="dgrctl patch shell -- PROGRAM names another"
        ) from error
    state = inspect(layout)
    return ShellResult(
        exit_code=code if code >= 0 else 128 - code,
        head=str(state.head),
        dirty=tuple(difference.path for difference in state.dirty),
        exported=state.head == load_lock(layout).head and not state.dirty,
    )
