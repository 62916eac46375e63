"""A small upstream and a checkout that pins it: what the tests of dgrctl.upstream work on."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self, get_args

from forked_commands import run_forked

from dgrctl.errors import DgrError
from dgrctl.layout import Layout
from dgrctl.upstream.export import export
from dgrctl.upstream.fetch import fetch
from dgrctl.upstream.git import Repository, run_git
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.series import LOCK_NAME, make_lock, render_lock
from dgrctl.upstream.stack import apply

PROGRAM = Path(__file__).with_name("model_program.py")

# Holds what is easy to get wrong: an executable, a link, an empty file, an ignored file, one that is ignored and yet tracked,
# carriage returns, bytes that are no text, and a name that is not ASCII.
FILES: dict[str, bytes] = {
    ".gitignore": b"*.log\n/build/\n/models/*\n",
    "README.md": "Größe: klein\n".encode(),
    "build-scripts/run.sh": b"#!/bin/sh\nexit 0\n",
    "models/kept.gguf": bytes(range(256)),
    "src/dos.txt": b"one\r\ntwo\r\n",
    "src/empty.h": b"",
    "src/llama.cpp": b"".join(b"int line_%d(void);\n" % number for number in range(60)),
    "src/models/deepseek4.cpp": b"// deepseek4\n" * 50,
    "src/models/llama.cpp": b"// llama\n" * 10,
    "src/über.h": b"// name outside ASCII\n",
}


FIRST, SECOND, THIRD = "0001-Core-first.patch", "0002-Core-second.patch", "0003-Llama-third.patch"


def message(subject: str, owns: str) -> str:
    """A commit message that says all that a patch must say."""
    return f"{subject}\n\nBecause größer ist besser.\n\nDrop-when: upstream is larger.\nOwns: {owns}"


Stage = Literal["new", "fetched", "applied", "stacked"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Checkout:
    """A checkout of ours, with an upstream of two commits beside it, copied from a template that is made once a session.

    Attributes:
        upstream: The repository that is fetched from, HEAD at the pin.
        layout: Of the checkout; its manifest has one transport, "git", to ``upstream``.
    """

    def __init__(self, folder: Path, stage: Stage = "new") -> None:
        """Makes it as it is after a number of steps: fetch, apply (of an empty stack), export of three patches."""
        template = Path(_template(stage).name)
        shutil.copytree(template / "server", folder / "server", symlinks=True)
        shutil.copytree(template / "checkout", folder / "checkout", symlinks=True)
        self._open(folder)
        self.write_manifest(self.git_transport())

    def _open(self, folder: Path) -> None:
        self.upstream = Repository(folder / "server", raises=DgrError)
        self.layout = Layout(folder / "checkout")

    @classmethod
    def at(cls, folder: Path) -> Self:
        """What lies in ``folder`` already."""
        self = cls.__new__(cls)
        self._open(folder)
        return self

    def git_transport(self) -> str:
        """The transport to ``upstream``, as the manifest has it."""
        return f'[[transports]]\nkind = "git"\nurl = "file://{self.upstream.folder}"\n'

    def move_pin_back(self) -> None:
        """Pins the upstream's first commit instead of its second, with an empty stack."""
        self.upstream.run("checkout", "--quiet", "--detach", "HEAD~1")
        self.write_manifest(self.git_transport())
        for path in self.layout.patches.glob("*.patch"):
            path.unlink()
        self.write_empty_series()

    def advance(self, files: Mapping[str, bytes | None], text: str = "Upstream goes on") -> str:
        """Commits these files (None: gone) in the upstream; returns the commit. The manifest keeps its pin."""
        for name, data in files.items():
            path = self.upstream.folder / name
            if data is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        return commit_all(self.upstream, text)

    def everything(self) -> dict[str, tuple[int, bytes]]:
        """Mode and content of every file of the checkout but locks and logs: what must be the same where nothing changed."""
        return {
            str(path.relative_to(self.layout.root)): (path.lstat().st_mode, path.read_bytes())
            for path in sorted(self.layout.root.rglob("*"))
            if path.is_file() and not path.is_symlink() and self.layout.locks not in path.parents
        }

    @property
    def commit(self) -> str:
        """The upstream's HEAD."""
        return self.upstream.text("rev-parse", "HEAD")

    def write_manifest(self, transports: str, **fields: str) -> None:
        """Pins the upstream's HEAD, or what ``fields`` say instead."""
        named = {
            "name": "llama.cpp",
            "version": "0.0.1",
            "commit": self.commit,
            "tree": self.upstream.text("rev-parse", "HEAD^{tree}"),
        } | fields
        lines = ["schema = 1", *(f'{name} = "{value}"' for name, value in named.items()), "", transports]
        self.layout.upstream_manifest.parent.mkdir(parents=True, exist_ok=True)
        self.layout.upstream_manifest.write_text("\n".join(lines), encoding="utf-8")

    def write_empty_series(self) -> None:
        """A stack of no patches for the manifest's pin."""
        manifest = load_manifest(self.layout)
        self.layout.patches.mkdir(parents=True, exist_ok=True)
        lock = make_lock(manifest, {}, [], tree=manifest.tree, head=manifest.commit)
        (self.layout.patches / LOCK_NAME).write_bytes(render_lock(lock))

    @property
    def workspace(self) -> Repository:
        return Repository(self.layout.workspace, raises=DgrError)

    def commit_change(self, subject: str, path: str = "src/llama.cpp", *, old: bytes = b"", new: bytes = b"// new\n") -> None:
        """Commits, in the workspace, ``old`` (or the file's end) replaced by ``new``, with the tester's own identity.

        Args:
            subject: The whole message, if it holds more than a subject.
        """
        file = self.layout.workspace / path
        content = file.read_bytes() if file.exists() else b""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.replace(old, new, 1) if old else content + new)
        self.workspace.run("add", "--all")
        self.workspace.run("-c", "user.name=Tester", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", subject)

    def patch_files(self) -> dict[str, bytes]:
        """Everything in the patch folder."""
        return {path.name: path.read_bytes() for path in sorted(self.layout.patches.iterdir())}

    def patch_files_or_pending(self) -> dict[str, bytes] | str:
        """Everything in the patch folder but what an export only prepares; "pending" where one was decided but not finished."""
        if (self.layout.patches / ".replacing").exists():
            return "pending"
        return {path.name: path.read_bytes() for path in sorted(self.layout.patches.iterdir()) if path.name[0] != "."}

    def environment(self, **extra: str) -> dict[str, str]:
        """The environment of a dgrctl that works on this checkout."""
        return os.environ | {"DGR_ROOT": str(self.layout.root)} | extra

    def command(self, *arguments: str, mode: str = "kill", step: str = "0") -> list[str]:
        """``dgrctl ARGUMENTS…``, to which ``mode`` happens before ``step`` (0: never); see the program."""
        return [sys.executable, str(PROGRAM), mode, step, *arguments]

    def run(self, *arguments: str, mode: str = "kill", step: str = "0", **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs ``dgrctl ARGUMENTS…`` on this checkout to its end; where ``environment`` is given, in a new interpreter."""
        if not environment:
            return run_forked(mode, step, arguments, self.environment())
        command = self.command(*arguments, mode=mode, step=step)
        return subprocess.run(command, env=self.environment(**environment), capture_output=True, text=True, check=False)

    def run_for(self, seconds: float, *arguments: str) -> None:
        """Runs ``dgrctl ARGUMENTS…`` and kills it after so many seconds; what it started goes on."""
        run_forked("kill", "0", arguments, self.environment(), seconds=seconds)


@functools.cache
def _template(stage: Stage) -> tempfile.TemporaryDirectory[str]:
    """A folder with a checkout at ``stage`` and its server; it goes when the session ends."""
    folder = tempfile.TemporaryDirectory(prefix="dgr-small-upstream.")
    if stage == "new":
        _make_upstream(Path(folder.name) / "server")
        checkout = Checkout.at(Path(folder.name))
        checkout.write_manifest(checkout.git_transport())
        checkout.write_empty_series()
        return folder
    checkout = Checkout(Path(folder.name), STAGES[STAGES.index(stage) - 1])
    if stage == "fetched":
        fetch(checkout.layout)
    elif stage == "applied":
        apply(checkout.layout)
    else:
        checkout.commit_change(message("Core: first", "src/llama.cpp"))
        checkout.commit_change(message("Core: second", "src/llama.cpp"), old=b"line_30", new=b"line_thirty")
        checkout.commit_change(message("Llama: third", "src/models/*.cpp"), "src/models/llama.cpp")
        export(checkout.layout)
    return folder


def _make_upstream(folder: Path) -> None:
    run_git("init", "--quiet", "--template=", str(folder), raises=DgrError)
    repository = Repository(folder, raises=DgrError)
    # As the real server does; without it only tips can be asked for.
    repository.run("config", "uploadpack.allowAnySHA1InWant", "true")
    (folder / "README.md").write_text("old\n")
    commit_all(repository, "First")
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "build-scripts" / "run.sh").chmod(0o755)
    (folder / "latest.h").symlink_to("src/empty.h")
    commit_all(repository, "Second")


def commit_all(repository: Repository, message: str) -> str:
    """Commits everything, ignored or not; returns the commit."""
    repository.run("add", "--all", "--force")
    repository.run("-c", "user.name=Up", "-c", "user.email=up@example.org", "commit", "--quiet", "-m", message)
    return repository.text("rev-parse", "HEAD")
