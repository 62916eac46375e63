"""Git does the same for everybody, and never waits for ever."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from upstream_checkout import Checkout

from dgrctl.errors import FetchError, IntegrityError, ToolchainError
from dgrctl.upstream.git import Repository, git_environment, run_git


def test_environment_keeps_nothing_that_changes_git(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = {"GIT_DIR": "/elsewhere", "GIT_CONFIG_COUNT": "1", "LANGUAGE": "de", "HOME": "/home/somebody", "LC_TIME": "de_DE"}
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    environment = git_environment()
    assert not hostile.keys() & environment.keys()
    assert environment["LC_ALL"] == "C"
    assert environment["TZ"] == "UTC"
    assert environment["GIT_TERMINAL_PROMPT"] == "0"


def test_certificate_authority_of_the_machine_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_SSL_CAINFO", "/etc/ssl/company.pem")
    assert git_environment()["GIT_SSL_CAINFO"] == "/etc/ssl/company.pem"


def test_missing_git_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        run_git("--version", raises=FetchError)
    assert "apt-get install git" in str(caught.value.remedy)


def test_failure_carries_what_git_said(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        run_git("clone", "--", str(tmp_path / "absent"), str(tmp_path / "clone"), raises=FetchError)
    assert "does not exist" in str(caught.value.detail)


def test_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/upstream"
        with pytest.raises(FetchError, match="no answer within"):
            run_git("ls-remote", url, raises=FetchError, cwd=tmp_path, timeout=1.0)


def test_repository_never_looks_above_its_folder(checkout: Checkout) -> None:
    inside = checkout.upstream.folder / "src"
    repository = Repository(inside, raises=IntegrityError)
    assert not repository.is_repository()
    with pytest.raises(IntegrityError):
        repository.run("rev-parse", "HEAD")


def test_hooks_of_the_repository_do_not_run(checkout: Checkout, tmp_path: Path) -> None:
    hook = checkout.upstream.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)
    checkout.upstream.run("checkout", "--quiet", "--detach", "HEAD~1")
    assert not (tmp_path / "ran").exists()


def test_protocols_that_run_programs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        run_git("ls-remote", f"ext::touch {tmp_path / 'ran'}", raises=FetchError)
    assert "not allowed" in str(caught.value.detail)
    assert not (tmp_path / "ran").exists()
