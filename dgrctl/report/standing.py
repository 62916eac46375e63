"""Where the user stands: which steps are done on this machine, and the next command. Looks at names and sizes; hashes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts.provision import statuses
from dgrctl.layout import Layout
from dgrctl.upstream.series import load_lock


@dataclass(frozen=True)
class Step:
    """One step of the way: what is there of it, and the command that does it."""

    name: str
    there: list[str]
    command: str


@dataclass(frozen=True)
class Standing:
    """All steps in their order. ``verified`` is false: nothing was hashed. ``next`` is the command of the first step not done."""

    steps: list[Step]
    next: str
    verified: bool = False


def standing(layout: Layout) -> Standing:
    """Looks at what is there.

    Raises:
        InputError: a lock or manifest of the checkout is malformed.
    """
    head = load_lock(layout).head
    steps = [
        Step("fetched", ["llama.cpp"] if (layout.pristine / ".git").is_dir() else [], "dgrctl fetch"),
        Step("patched", [head] if _head(layout.workspace / ".git") == head else [], "dgrctl patch"),
        Step("built", _stems(layout.builds / "records"), "dgrctl build --lane cpu"),
        Step("pulled", [each.manifest.id for each in statuses(layout) if each.state == "present"], "dgrctl model list"),
        Step("certified", _signed(layout.evidence), "dgrctl certify --help"),
    ]
    return Standing(steps, next((step.command for step in steps if not step.there), "dgrctl matrix"))


def _head(git: Path) -> str | None:
    """The commit that is checked out, without a run of git."""
    try:
        text = (git / "HEAD").read_text(encoding="utf-8").strip()
        return (git / text.removeprefix("ref: ")).read_text(encoding="utf-8").strip() if text.startswith("ref: ") else text
    except OSError:
        return None


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.json"))


def _signed(folder: Path) -> list[str]:
    """Signed files, as paths below ``folder``; what they say is not looked at."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.dsse.json"))
