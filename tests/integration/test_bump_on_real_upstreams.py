"""The real stack rehearsed on real upstream trees: older, newer, shallow and squashed. Nothing is built.

How the patches fare changes with the stack and with the pin, so it is printed; what is asserted holds for any of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import real_upstreams

from dgrctl.layout import Layout
from dgrctl.report.patch_text import BUMP_HEADINGS, bump_rows
from dgrctl.report.table import print_table
from dgrctl.upstream.attempt import FAILURES
from dgrctl.upstream.bump import abort, bump
from dgrctl.upstream.bump_report import BumpReport
from dgrctl.upstream.fetch import verify_pristine
from dgrctl.upstream.series import load_lock
from dgrctl.upstream.stack import status

SOURCES: dict[str, Callable[[Layout], tuple[Path, str]]] = {
    "the pin": lambda layout: (layout.pristine, "HEAD"),
    "the sdist's older commit": lambda layout: (real_upstreams.sdist(layout), real_upstreams.SDIST_COMMIT),
    "v0.4.0": lambda layout: (real_upstreams.bundle(layout, "v0.4.0"), "HEAD"),
    "v0.5.0": lambda layout: (real_upstreams.bundle(layout, "v0.5.0"), "HEAD"),
}


@pytest.fixture
def beside(layout: Layout, tmp_path: Path) -> Layout:
    """A checkout of its own with the same manifests and patches, and this one's fetched source."""
    if not layout.pristine.exists():
        pytest.fail("llama.cpp was not fetched; dgrctl fetch", pytrace=False)
    made = Layout(tmp_path / "checkout")
    for folder in ("manifests", "patches"):
        shutil.copytree(layout.root / folder, made.root / folder)
    made.pristine.parent.mkdir(parents=True)
    made.pristine.symlink_to(layout.pristine)
    return made


def files_of(layout: Layout) -> dict[str, bytes]:
    """Everything of the checkout that git would track."""
    return {
        str(path): path.read_bytes()
        for name in ("manifests", "patches")
        for path in (layout.root / name).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", SOURCES)
def test_rehearsal(layout: Layout, beside: Layout, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, to = SOURCES[name](layout)
    before, lock = files_of(beside), load_lock(beside)
    report = bump(beside, to=to, source=source)
    with capsys.disabled():
        print(f"\n{name}: {report.target.commit}, version {report.target.version}")
        print_table(BUMP_HEADINGS, bump_rows(report.patches))
    assert [line.name for line in report.patches] == [patch.name for patch in lock.patches]
    check_outcomes(report)
    if name == "the pin":
        assert {line.outcome for line in report.patches} == {"clean"}
        assert report.lock == lock
    if report.applies:
        assert report.lock is not None
        assert report.lock.pin == report.target.commit
    else:
        waiting = beside.state / "bump" / "llama.cpp"
        assert report.worktree == str(waiting)
        assert abort(beside)
    assert files_of(beside) == before
    assert not (beside.state / "bump").exists()
    assert not status(beside).applied
    verify_pristine(beside)


def check_outcomes(report: BumpReport) -> None:
    failed = [line for line in report.patches if line.outcome in FAILURES]
    assert report.applies == (not failed)
    for line in report.patches:
        assert (line.cause is not None) == (line in failed)
        assert bool(line.conflicts) == (line in failed)
        assert set(line.follows) <= {each.name for each in failed if each.cause == "first"}
        assert bool(line.follows) == (line.cause == "follows")
    assert not failed or failed[0].cause == "first"
