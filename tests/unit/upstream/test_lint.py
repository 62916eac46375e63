"""Lint finds everything that is wrong, in one run, and nothing where all is well."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from upstream_checkout import FIRST, SECOND, Checkout, message

from dgrctl.errors import InputError, PatchError
from dgrctl.upstream.export import export
from dgrctl.upstream.lint import Finding, lint
from dgrctl.upstream.series import LOCK_NAME


def found(checkout: Checkout) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in lint(checkout.layout).findings]


def test_good_stack_has_no_findings_and_its_size(stacked: Checkout) -> None:
    report = lint(stacked.layout)
    assert report.findings == ()
    assert (report.lines.core.changed, report.lines.architectures["llama"].changed) == (3, 1)


def test_it_needs_nothing_fetched(checkout: Checkout) -> None:
    assert not checkout.layout.pristine.exists()
    assert lint(checkout.layout).findings == ()


def test_one_patch_over_many_architectures(applied: Checkout) -> None:
    """The budget is each architecture's own; one pattern owns them all."""
    for name in range(60):
        path = applied.layout.workspace / "src" / "models" / f"arch{name}.cpp"
        path.write_bytes(b"// x\n" * 6)
    applied.commit_change(message("Models: many", "src/models/*.cpp"), "src/models/deepseek4.cpp", new=b"// x\n" * 40)
    report = lint_exported(applied)
    assert report == []
    assert lint(applied.layout).lines.core.changed == 0


def lint_exported(checkout: Checkout) -> list[str]:
    export(checkout.layout)
    return [str(finding) for finding in lint(checkout.layout).findings]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("Core: x", ["header", "header", "header"]),
        ("Core: x\n\nWhy.\n\nOwns: src/llama.cpp", ["header"]),
        ("Core: x\n\nWhy.\n\nDrop-when: a\nDrop-when: b\nOwns: src/llama.cpp", ["header"]),
        ("Core: x\n\nDrop-when: a\nOwns: src/llama.cpp", ["header"]),
        ("Core: x\n\nWhy.\n\nDrop-when: a", ["header"]),
        (message("Core: x", "src/other.cpp"), ["ownership", "ownership"]),
        (message("Core: x", "src/llama.cpp src/*.h"), ["ownership"]),
        (message("Core: x", "src/*.cpp src/llama.*"), []),
    ],
)
def test_header(applied: Checkout, text: str, rules: list[str]) -> None:
    applied.commit_change(text)
    export(applied.layout)
    assert found(applied) == [(rule, "0001-Core-x.patch") for rule in rules]


@pytest.mark.parametrize(
    ("path", "old", "new", "what"),
    [
        ("src/llama.cpp", b"", b"int x; \n", "ends in white space"),
        ("src/llama.cpp", b"", b"int x;\t\n", "ends in white space"),
        ("src/llama.cpp", b"", b"int x;\r\n", "carriage return"),
        ("src/llama.cpp", b"int line_30(void);", b"int  line_30( void );", "white space alone"),
        ("src/llama.cpp", b"int line_30(void);\n", b"int line_30(void);\n\n", "white space alone"),
        ("src/llama.cpp", b"", b"<<<<<<< ours\n", "conflict marker"),
        ("src/dos.txt", b"", b"three\n", None),
        ("src/dos.txt", b"", b"three\r\n", None),
        ("src/dos.txt", b"two\r\n", b"two\n", "white space alone"),
        ("src/llama.cpp", b"int line_30(void);\n", b"if (x) {\n    int line_30(void);\n}\n", None),
        ("src/llama.cpp", b"int line_30(void);\n", b"", None),
    ],
)
def test_noise(applied: Checkout, path: str, old: bytes, new: bytes, what: str | None) -> None:
    applied.commit_change(message("Core: x", path), path, old=old, new=new)
    findings = lint_exported(applied)
    assert [what in finding for finding in findings if what] == [True] * (what is not None)
    assert len(findings) == (what is not None)


def test_budgets(stacked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgrctl.upstream.budget.CORE_LINES", 2)
    monkeypatch.setattr("dgrctl.upstream.budget.ARCHITECTURE_LINES", 0)
    budgets = [finding.what for finding in lint(stacked.layout).findings if finding.rule == "budget"]
    assert budgets == ["too many changed lines: core: 3 of 2", "too many changed lines: llama: 1 of 0"]


def _rename(checkout: Checkout) -> None:
    (checkout.layout.patches / SECOND).rename(checkout.layout.patches / "0002-Core-another.patch")


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda c: (c.layout.patches / SECOND).unlink(), {("series", SECOND), ("form", "0003-Llama-third.patch")}),
        (_rename, {("series", SECOND), ("form", "0002-Core-another.patch")}),
        (lambda c: (c.layout.patches / "0004-x.patch").write_bytes(b""), {("series", "0004-x.patch"), ("form", "0004-x.patch")}),
        (lambda c: (c.layout.patches / FIRST).write_bytes(b"\xff"), {("series", FIRST), ("form", FIRST)}),
        (lambda c: (c.layout.patches / LOCK_NAME).unlink(), {("series", LOCK_NAME)}),
        (lambda c: (c.layout.patches / LOCK_NAME).write_bytes(b"{}"), {("series", LOCK_NAME)}),
        (lambda c: (c.layout.patches / ".replacing").mkdir(), {("series", "llama.cpp")}),
    ],
)
def test_series(stacked: Checkout, edit: Callable[[Checkout], object], expected: set[tuple[str, str]]) -> None:
    edit(stacked)
    assert {(rule, where.split(": ")[0].rpartition("/")[2]) for rule, where in found(stacked)} == expected


def test_missing_manifest_is_refused(stacked: Checkout) -> None:
    stacked.layout.upstream_manifest.unlink()
    with pytest.raises(InputError):
        lint(stacked.layout)


def test_command(stacked: Checkout) -> None:
    done = stacked.run("patch", "lint")
    assert (done.returncode, done.stdout) == (
        0,
        "3 patch(es), nothing to find fault with\nchanged lines: core 3 of 249, llama 1 of 6\n",
    )
    (stacked.layout.patches / FIRST).unlink()
    done = stacked.run("patch", "lint", "--json")
    assert done.returncode == PatchError.exit_code
    assert Finding(**json.loads(done.stdout)["findings"][0]).rule == "series"
