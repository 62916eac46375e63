"""Two people apply the same stack: other paths, times, users, languages and git configurations; the same HEAD and tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from upstream_checkout import Checkout

from dgrctl.errors import DgrError
from dgrctl.upstream.git import Repository, run_git

_CONFIGURATION = """[core]
autocrlf = true
eol = crlf
hooksPath = ~/hooks
whitespace = cr-at-eol
abbrev = 5
[commit]
gpgsign = true
[gpg]
program = /bin/false
[apply]
whitespace = fix
[diff]
noprefix = true
context = 1
algorithm = patience
[i18n]
commitEncoding = ISO-8859-1
[user]
name = Somebody Else
email = else@example.org
"""


@pytest.fixture
def other_home(tmp_path: Path) -> Path:
    """Of a user whose git does everything otherwise, and whose hooks forbid everything."""
    home = tmp_path / "home of another"
    (home / "hooks").mkdir(parents=True)
    (home / ".gitconfig").write_text(_CONFIGURATION)
    (home / ".gitattributes").write_text("* text=auto eol=crlf ident\n")
    for hook in ("pre-commit", "post-commit", "post-checkout", "commit-msg", "reference-transaction", "pre-applypatch"):
        (home / "hooks" / hook).write_text("#!/bin/sh\nexit 1\n")
        (home / "hooks" / hook).chmod(0o755)
    return home


def test_same_head_and_tree(tmp_path: Path, other_home: Path) -> None:
    here = Checkout(tmp_path / "here", "stacked")
    outer = tmp_path / "another-repository" / "ünder"
    run_git("init", "--quiet", "--template=", str(outer.parent), raises=DgrError)
    there = Checkout(outer, "stacked")
    environment = {
        "HOME": str(other_home),
        "XDG_CONFIG_HOME": str(other_home),
        "USER": "somebody",
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Kiritimati",
        "GIT_DIR": str(outer.parent / ".git"),
        "GIT_WORK_TREE": str(outer.parent),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_AUTHOR_DATE": "2001-02-03T04:05:06",
        "GIT_COMMITTER_DATE": "2031-02-03T04:05:06",
        "GIT_CONFIG_GLOBAL": str(other_home / ".gitconfig"),
    }
    first = applied(here, {})
    second = applied(there, environment)
    assert (first["workspace_head"], first["workspace_tree"]) == (second["workspace_head"], second["workspace_tree"])
    assert (first["applied"], second["applied"]) == (True, True)
    raw = [Repository(each.layout.workspace, raises=DgrError).run("cat-file", "commit", "HEAD") for each in (here, there)]
    assert raw[0] == raw[1]


def applied(checkout: Checkout, environment: dict[str, str]) -> dict[str, object]:
    """A forced apply, as ``--json`` prints it."""
    done = checkout.run("patch", "apply", "--force", "--json", **environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_same_head_under_another_user_id(tmp_path: Path) -> None:
    """In a user namespace, where every file seems to belong to somebody else."""
    probe = subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no user namespace can be made on this machine: {probe.stderr.strip()}")
    checkout = Checkout(tmp_path, "stacked")
    head = applied(checkout, {})["workspace_head"]
    command = ["unshare", "--user", *checkout.command("patch", "apply", "--force", "--json")]
    done = subprocess.run(command, env=checkout.environment(HOME=os.devnull), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workspace_head"] == head
