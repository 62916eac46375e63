"""Running git so that it does the same for everybody: no configuration, hooks, environment or prompts but our own.

Every call of git in dgrctl goes through here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dgrctl.errors import DgrError, StorageError, ToolchainError
from dgrctl.files import storage_errors
from dgrctl.offspring import marked

# Commands that talk to a disk or a network that hangs must end; the longest honest one (a clone with history) takes minutes.
_LIMIT_SECONDS = 1800.0
_FULL_BYTES = 64 * 1024
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")

_SETTINGS = {
    "advice.detachedHead": "false",
    "commit.gpgSign": "false",
    "core.askPass": "",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.excludesFile": os.devnull,
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.safecrlf": "false",
    "core.symlinks": "true",
    "core.untrackedCache": "false",
    "credential.helper": "",
    "gc.auto": "0",
    "init.defaultBranch": "main",
    "maintenance.auto": "false",
    # Connected, but under 1 kB/s for 30 s: dead. (git has no setting for the time to connect; see transports.py.)
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    # The checkout may belong to another user (a container's bind mount); what lies in it is verified by hash anyway.
    "safe.directory": "*",
}

_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "https:file",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    # The objects are what their ids say, whatever a repository would show in their place.
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "TZ": "UTC",
}

# How to reach the network is the machine's affair (a company's certificate authority), and cannot change what arrives.
_KEPT = frozenset({"GIT_SSL_CAINFO", "GIT_SSL_CAPATH"})
_DROPPED = frozenset({"HOME", "LANGUAGE", "SSH_ASKPASS", "XDG_CONFIG_HOME"})


def git_environment() -> dict[str, str]:
    """The environment of every git: this process's, without any ``GIT_*``, home folder or language."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (name.startswith(("GIT_", "LC_")) or name in _DROPPED)
    }
    return inherited | _ENVIRONMENT


def git_command(*arguments: str) -> list[str]:
    """``git`` with our settings in front of ``arguments``."""
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    return ["git", *settings, *arguments]


def run_git(
    *arguments: str,
    raises: type[DgrError],
    cwd: Path | None = None,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = _LIMIT_SECONDS,
    accepted: Sequence[int] = (0,),
) -> bytes:
    """Runs git outside any repository (``clone``, ``init``, ``ls-remote``); :class:`Repository` is for within one.

    Args:
        raises: The error class of the step that needs git.
        accepted: Exit codes that are an answer and not a failure.

    Returns:
        What git wrote to stdout.

    Raises:
        ToolchainError: there is no git.
        StorageError: the disk is full.
        DgrError: of class ``raises``; git failed or ran past ``timeout``. ``detail`` holds the last lines it wrote.
    """
    shown = " ".join(["git", *(argument for argument in arguments if not argument.startswith("--git-dir="))])
    try:
        process = subprocess.Popen(
            git_command(*arguments),
            cwd=cwd,
            env=marked(git_environment() | dict(environment or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except FileNotFoundError as error:
        raise ToolchainError("git is not installed", where="PATH", remedy="install it: apt-get install git") from error
    try:
        output, messages = process.communicate(stdin or b"", timeout)
    except subprocess.TimeoutExpired as error:
        raise raises(f"git gave no answer within {timeout:.0f} s", where=shown) from error
    finally:
        _end_group(process)
    if process.returncode in accepted:
        return output
    # fsck tells what it found on stdout.
    tail = "\n".join((messages or output).decode("utf-8", "replace").splitlines()[-8:])
    if "No space left on device" in tail or "Disk quota exceeded" in tail or _is_full(cwd):
        raise StorageError(
            "the disk is full", where=str(cwd) if cwd else shown, detail=tail, remedy="free space and run the same command again"
        )
    raise raises(f"git ended with exit code {process.returncode}", where=shown, detail=tail)


def _is_full(folder: Path | None) -> bool:
    """Whether hardly anything fits on the folder's disk; git does not always say that this is why it failed."""
    try:
        return folder is not None and shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends git if it still runs, with the helpers it started, which would otherwise go on waiting for a network."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# The folder, in the git folder, of a temporary git directory.
SCRATCH = "dgr-index."


class Repository:
    """A git repository with its work tree at ``folder``. Never looks above that folder for another one.

    Args:
        folder: Holds ``.git``.
        raises: The class of the errors when git fails here.
    """

    def __init__(self, folder: Path, *, raises: type[DgrError]) -> None:
        self.folder = folder
        self.raises = raises

    @contextmanager
    def objects_alone(self, *oldest: str) -> Iterator[Repository]:
        """Gives this repository's objects and nothing else of it.

        What it gives is a bare repository in a temporary git directory, which shares only the folder of the objects. Its
        configuration, attributes, references, index and hooks are its own and empty, so no setting of this repository has an
        effect. Objects that git writes there are objects of this repository.

        Args:
            oldest: Commits whose parents git does not look for.
        """
        with (
            storage_errors(self.folder),
            tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self.folder / ".git") as name,
        ):
            folder = Path(name)
            (folder / "refs").mkdir()
            (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
            (folder / "config").write_text("[core]\n\trepositoryFormatVersion = 0\n\tbare = true\n", encoding="ascii")
            shallow = self.folder / ".git" / "shallow"
            known = shallow.read_text(encoding="ascii").split() if shallow.is_file() else []
            roots = sorted({*known, *oldest})
            (folder / "shallow").write_text("".join(f"{commit}\n" for commit in roots), encoding="ascii")
            yield _Objects(folder, self.folder / ".git" / "objects", raises=self.raises)

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        accepted: Sequence[int] = (0,),
    ) -> bytes:
        """Runs git in this repository; see :func:`run_git`."""
        return run_git(
            f"--git-dir={self.folder / '.git'}",
            f"--work-tree={self.folder}",
            *arguments,
            raises=self.raises,
            cwd=self.folder,
            stdin=stdin,
            environment=environment,
            accepted=accepted,
        )

    def text(self, *arguments: str, stdin: bytes | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Like :meth:`run`; the answer as text without the line's end."""
        return self.run(*arguments, stdin=stdin, environment=environment).decode("utf-8", "surrogateescape").rstrip("\n")

    def resolve(self, revision: str) -> str | None:
        """The object id that ``revision`` names, or None where there is no such object."""
        answer = self.run("rev-parse", "--verify", "--quiet", revision, accepted=(0, 1, 128))
        return answer.decode().strip() or None

    def resolve_all(self, *revisions: str) -> list[str | None]:
        """:meth:`resolve` for each, by one git; all None where this is no repository."""
        if not (self.folder / ".git").is_dir():
            return [None] * len(revisions)
        asked = "".join(f"{revision}\n" for revision in revisions).encode()
        answer = self.run("cat-file", "--batch-check=%(objectname)", stdin=asked, accepted=(0, 128)).decode().splitlines()
        if len(answer) != len(revisions):
            return [None] * len(revisions)
        return [line if _OBJECT_ID.fullmatch(line) else None for line in answer]

    def is_repository(self) -> bool:
        """Whether git takes this folder for a repository."""
        return (self.folder / ".git").is_dir() and bool(self.run("rev-parse", "--git-dir", accepted=(0, 128)))


class _Objects(Repository):
    """The git directory at ``folder``, bare, with the objects of another repository."""

    def __init__(self, folder: Path, objects: Path, *, raises: type[DgrError]) -> None:
        super().__init__(folder, raises=raises)
        self._environment = {"GIT_OBJECT_DIRECTORY": str(objects)}

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        accepted: Sequence[int] = (0,),
    ) -> bytes:
        return run_git(
            f"--git-dir={self.folder}",
            *arguments,
            raises=self.raises,
            cwd=self.folder,
            stdin=stdin,
            environment=self._environment | dict(environment or {}),
            accepted=accepted,
        )
