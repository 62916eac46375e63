"""Taking the stack off: the pin alone is left, nobody's work is lost, and nothing takes the bare pin for an empty stack."""

from __future__ import annotations

import json
import shutil

import pytest
from upstream_checkout import Checkout

from dgrctl.errors import FetchError, IntegrityError, PatchError
from dgrctl.upstream.export import export
from dgrctl.upstream.stack import apply, status, unapply, verify_workspace


def test_off_and_on_again(stacked: Checkout) -> None:
    result = unapply(stacked.layout)
    assert (result.changed, result.applied, result.workspace_head) == (True, False, stacked.commit)
    assert stacked.workspace.run("status", "--porcelain", "--ignored") == b""
    with pytest.raises(PatchError, match="taken off") as caught:
        verify_workspace(stacked.layout)
    assert caught.value.remedy == "dgrctl patch"
    assert "taken off" in status(stacked.layout).drift[0]
    assert not unapply(stacked.layout).changed
    assert apply(stacked.layout).changed
    assert verify_workspace(stacked.layout).applied


def test_the_bare_pin_is_not_exported_as_an_empty_stack(stacked: Checkout) -> None:
    before = stacked.patch_files()
    unapply(stacked.layout)
    for _ in range(2):
        with pytest.raises(PatchError, match="would undo"):
            export(stacked.layout)
        assert stacked.patch_files() == before
        # Nor is what somebody adds to it.
        stacked.commit_change("Core: mine")
    assert export(stacked.layout, force=True).removed == tuple(name for name in before if name.endswith(".patch"))


def test_a_former_stack_is_not_exported_over_what_a_pull_brought(stacked: Checkout) -> None:
    stacked.commit_change("Core: fourth")
    export(stacked.layout)
    pulled = stacked.patch_files()
    stacked.workspace.run("reset", "--quiet", "--hard", "HEAD~1")
    export(stacked.layout)
    for name, data in pulled.items():
        (stacked.layout.patches / name).write_bytes(data)
    with pytest.raises(PatchError, match="would undo") as caught:
        export(stacked.layout)
    assert "--force" in str(caught.value.remedy)
    assert stacked.patch_files() == pulled


def test_work_is_kept(stacked: Checkout) -> None:
    stacked.commit_change("Core: fourth")
    head = stacked.workspace.resolve("HEAD")
    with pytest.raises(PatchError, match="in no patch"):
        unapply(stacked.layout)
    (stacked.layout.workspace / "README.md").write_text("mine")
    with pytest.raises(IntegrityError):
        unapply(stacked.layout)
    assert stacked.workspace.resolve("HEAD") == head
    assert unapply(stacked.layout, force=True).workspace_head == stacked.commit


def test_without_a_workspace_there_is_nothing_to_do(stacked: Checkout) -> None:
    shutil.rmtree(stacked.layout.workspace)
    assert not unapply(stacked.layout).changed
    assert not stacked.layout.workspace.exists()


def test_without_the_source_the_workspace_stays(stacked: Checkout) -> None:
    shutil.rmtree(stacked.layout.pristine)
    with pytest.raises(FetchError):
        unapply(stacked.layout)
    assert verify_workspace(stacked.layout).applied


def test_command(stacked: Checkout) -> None:
    done = stacked.run("patch", "unapply", "--json")
    assert (done.returncode, json.loads(done.stdout)["workspace_head"]) == (0, stacked.commit)
    assert "took 3 patch(es) off" in done.stderr
    assert "nothing to do" in stacked.run("patch", "unapply").stderr
