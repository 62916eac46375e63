"""The shell stands in the workspace, whatever the caller's git variables say, and its way back is an export."""

from __future__ import annotations

import json
import shutil

from upstream_checkout import Checkout

from dgrctl.errors import FetchError, ToolchainError
from dgrctl.upstream.stack import verify_workspace

COMMIT = "printf '// x\\n' >> src/llama.cpp && git -c user.name=T -c user.email=t@t commit -qam 'Core: more'"


def test_round_trip(stacked: Checkout) -> None:
    wrong = {"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index"}
    done = stacked.run("patch", "shell", "--", "sh", "-c", COMMIT, **wrong)
    assert done.returncode == 0, done.stderr
    assert "next: dgrctl patch export" in done.stderr
    assert stacked.run("patch", "export", "--json").returncode == 0
    assert verify_workspace(stacked.layout).patches[-1] == "0004-Core-more.patch"
    again = stacked.run("patch", "shell", "--json", "--", "true")
    assert json.loads(again.stdout)["exported"]
    assert "next" not in again.stderr


def test_users_own_shell(stacked: Checkout) -> None:
    """Its exit code is that of its last command, which says nothing of the shell."""
    done = stacked.run("patch", "shell", SHELL="/bin/false")
    assert done.returncode == 0, done.stderr


def test_what_is_left_is_told_apart_from_what_the_command_says(stacked: Checkout) -> None:
    done = stacked.run("patch", "shell", "--json", "--", "sh", "-c", "echo said; echo x >> README.md; exit 9")
    assert done.returncode == 9
    assert "said" in done.stderr
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["dirty"], result["exported"]) == (9, ["README.md"], False)
    assert "not committed" in done.stderr


def test_export_from_inside(stacked: Checkout) -> None:
    """The shell holds no lock that export would wait for."""
    command = stacked.command("patch", "export")
    done = stacked.run("patch", "shell", "--", "sh", "-c", f'{COMMIT} && "$@"', "sh", *command)
    assert done.returncode == 0, done.stderr
    assert verify_workspace(stacked.layout).applied


def test_workspace_is_made_if_there_is_none(stacked: Checkout) -> None:
    shutil.rmtree(stacked.layout.workspace)
    assert stacked.run("patch", "shell", "--", "test", "-e", "src/llama.cpp").returncode == 0
    assert verify_workspace(stacked.layout).applied


def test_before_fetch(checkout: Checkout) -> None:
    assert checkout.run("patch", "shell", "--", "true").returncode == FetchError.exit_code


def test_missing_program(stacked: Checkout) -> None:
    done = stacked.run("patch", "shell", "--", "no-such-program")
    assert done.returncode == ToolchainError.exit_code
    assert "no-such-program" in done.stderr
