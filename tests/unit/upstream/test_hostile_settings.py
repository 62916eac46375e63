"""Settings of the workspace's own git do not change an export by a byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream_checkout import Checkout, message

from dgrctl.errors import DgrError
from dgrctl.upstream.export import export
from dgrctl.upstream.git import Repository
from dgrctl.upstream.stack import apply, verify_workspace

SETTINGS: dict[str, str] = {
    "apply.ignoreWhitespace": "change",
    "apply.whitespace": "fix",
    "color.ui": "always",
    "commit.gpgSign": "true",
    "core.abbrev": "4",
    "core.attributesFile": "{folder}/attributes",
    "core.autocrlf": "true",
    "core.bigFileThreshold": "1",
    "core.commentChar": "C",
    "core.eol": "crlf",
    "core.fsmonitor": "false",
    "core.hooksPath": "{folder}/hooks",
    "core.ignoreCase": "true",
    "core.quotePath": "true",
    "core.whitespace": "tab-in-indent,cr-at-eol",
    "diff.algorithm": "patience",
    "diff.context": "9",
    "diff.cpp.xfuncname": "(.*)",
    "diff.default.xfuncname": "(.*)",
    "diff.external": "false",
    "diff.indentHeuristic": "false",
    "diff.interHunkContext": "50",
    "diff.mnemonicPrefix": "true",
    "diff.noprefix": "true",
    "diff.orderFile": "{folder}/order",
    "diff.relative": "true",
    "diff.renames": "copies",
    "diff.submodule": "log",
    "diff.suppressBlankEmpty": "true",
    "diff.wsErrorHighlight": "all",
    "format.encodeEmailHeaders": "false",
    "format.pretty": "oneline",
    "format.subjectPrefix": "OTHER",
    "i18n.commitEncoding": "latin1",
    "i18n.logOutputEncoding": "latin1",
    "log.date": "relative",
    "log.decorate": "full",
    "log.diffMerges": "off",
    "log.showRoot": "false",
    "log.showSignature": "true",
    "merge.conflictStyle": "diff3",
    "notes.displayRef": "*",
    "user.email": "eve@example.org",
    "user.name": "Eve",
}

ATTRIBUTES = [
    "*.cpp -diff",
    "*.cpp binary",
    "*.cpp diff=cpp",
    "*.cpp diff=shout",
    "*.cpp text eol=crlf whitespace=-blank-at-eol",
    "*.cpp merge=ours",
    "*.cpp export-subst ident",
]


@pytest.fixture
def changed(stacked: Checkout) -> Checkout:
    """A stack whose last commit was not exported yet: it is about blank lines, several places and text outside ASCII."""
    data = (stacked.layout.workspace / "src" / "llama.cpp").read_bytes()
    new = data.replace(b"int line_8(void);\n", b"\nint acht(void);  \n\n").replace(b"int line_24(void);\n", b"\t\n")
    stacked.commit_change(message("Core: Größe", "src/llama.cpp"), old=data, new=new)
    stacked.commit_change(message("[tag] Core: again", "src/llama.cpp"), old=b"line_10(", new=b"line_ten(")
    return stacked


def exported(checkout: Checkout) -> dict[str, bytes]:
    export(checkout.layout)
    assert verify_workspace(checkout.layout).applied
    return checkout.patch_files()


@pytest.fixture
def expected(changed: Checkout, tmp_path: Path) -> dict[str, bytes]:
    """The files of the same export without any setting; the workspace is as it was before it."""
    head = changed.workspace.text("rev-parse", "HEAD")
    before = changed.patch_files()
    result = exported(changed)
    changed.workspace.run("update-ref", "HEAD", head)
    changed.workspace.run("update-ref", "refs/dgr/applied", changed.workspace.text("rev-parse", "HEAD~2"))
    for name in result.keys() - before.keys():
        (changed.layout.patches / name).unlink()
    for name, data in before.items():
        (changed.layout.patches / name).write_bytes(data)
    return result


def hostile(checkout: Checkout, folder: Path, settings: dict[str, str], attributes: str = "") -> None:
    """Gives the workspace's git these settings."""
    (folder / "hooks").mkdir()
    for hook in ("reference-transaction", "post-index-change"):
        (folder / "hooks" / hook).write_text("#!/bin/sh\nexit 1\n")
        (folder / "hooks" / hook).chmod(0o755)
    (folder / "attributes").write_text("*.cpp -diff\n")
    (folder / "order").write_text("*.h\n")
    repository: Repository = checkout.workspace
    for name, value in settings.items():
        repository.run("config", name, value.format(folder=folder))
    if attributes:
        (checkout.layout.workspace / ".git" / "info" / "attributes").write_text(f"{attributes}\n")


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_changes_an_export(changed: Checkout, expected: dict[str, bytes], tmp_path: Path, name: str) -> None:
    hostile(changed, tmp_path, {name: SETTINGS[name]})
    assert exported(changed) == expected


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_no_attribute_changes_an_export(changed: Checkout, expected: dict[str, bytes], tmp_path: Path, attributes: str) -> None:
    hostile(changed, tmp_path, {"diff.shout.textconv": "tr a-z A-Z <", "diff.shout.command": "false"}, attributes)
    assert exported(changed) == expected


def test_all_settings_together_change_nothing(changed: Checkout, expected: dict[str, bytes], tmp_path: Path) -> None:
    hostile(changed, tmp_path, SETTINGS, ATTRIBUTES[0])
    assert exported(changed) == expected


@pytest.mark.parametrize("how", ["replace", "graft"])
def test_a_history_shown_otherwise_changes_nothing(changed: Checkout, expected: dict[str, bytes], how: str) -> None:
    repository = changed.workspace
    head, pin = repository.text("rev-parse", "HEAD"), repository.text("rev-parse", "upstream")
    if how == "replace":
        repository.run("update-ref", f"refs/replace/{head}", pin)
    else:
        (changed.layout.workspace / ".git" / "info" / "grafts").write_text(f"{head} {pin}\n")
    assert exported(changed) == expected


def test_a_subject_in_brackets_comes_through(changed: Checkout) -> None:
    name = next(name for name in exported(changed) if name.startswith("0005"))
    assert b"Subject: [PATCH] [tag] Core: again\n" in (changed.layout.patches / name).read_bytes()
    assert changed.workspace.text("log", "-1", "--format=%s") == "[tag] Core: again"
    head = changed.workspace.text("rev-parse", "HEAD")
    apply(changed.layout, force=True)
    assert changed.workspace.text("rev-parse", "HEAD") == head


def test_a_hostile_workspace_still_refuses_what_is_not_text(stacked: Checkout, tmp_path: Path) -> None:
    hostile(stacked, tmp_path, {}, "* diff")
    stacked.commit_change(message("Core: bytes", "src/data.bin"), "src/data.bin", new=b"\0\1\2")
    with pytest.raises(DgrError, match=r"Core: bytes.*binary") as caught:
        export(stacked.layout)
    assert "git rebase -i" in str(caught.value.remedy)
