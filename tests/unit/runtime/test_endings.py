"""Wait statuses in words."""

from __future__ import annotations

import pytest

from dgrctl.runtime.endings import Cause, classify
from dgrctl.runtime.oom import Verdict

INNOCENT = Verdict(killed=False, evidence=None)


@pytest.mark.parametrize(
    ("status", "oom", "cause", "words"),
    [
        (0, None, Cause.EXIT, "exited with code 0"),
        (3, None, Cause.EXIT, "exited with code 3"),
        (-9, INNOCENT, Cause.SIGNALLED, "was killed by SIGKILL"),
        (-9, Verdict(killed=True, evidence="E"), Cause.OUT_OF_MEMORY, "was killed by the out-of-memory killer (SIGKILL; E)"),
        (-9, Verdict(killed=False, evidence="C"), Cause.SIGNALLED, "was killed by SIGKILL (while it ran, the C)"),
        (-6, None, Cause.ABORTED, "aborted (SIGABRT)"),
        (-11, None, Cause.CRASHED, "crashed (SIGSEGV)"),
        (-8, None, Cause.CRASHED, "crashed (SIGFPE)"),
        (-15, None, Cause.SIGNALLED, "was killed by SIGTERM"),
        (-50, None, Cause.SIGNALLED, "was killed by signal 50"),
    ],
)
def test_words_for_every_way_to_end(status: int, oom: Verdict | None, cause: Cause, words: str) -> None:
    ending = classify(status, oom)
    assert ending.cause is cause
    assert str(ending) == words
    assert ending.remedy
    assert ending.clean == (status == 0)


def test_an_illegal_instruction_names_the_level_it_was_built_for() -> None:
    assert "ISA level x86-64-v4" in str(classify(-4, None, "x86-64-v4"))
    assert "the ISA level it was built for" in str(classify(-4, None))
