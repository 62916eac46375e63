"""How a process ended, in words that name the cause."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass

from dgrctl.runtime.oom import Verdict


class Cause(enum.StrEnum):
    """What ended a process."""

    EXIT = "exit"
    OUT_OF_MEMORY = "out-of-memory"
    ABORTED = "aborted"
    CRASHED = "crashed"
    ILLEGAL_INSTRUCTION = "illegal-instruction"
    UNREADABLE_FILE = "unreadable-file"
    SIGNALLED = "signalled"


_BY_SIGNAL = {
    signal.SIGABRT: Cause.ABORTED,
    signal.SIGSEGV: Cause.CRASHED,
    signal.SIGBUS: Cause.UNREADABLE_FILE,
    signal.SIGFPE: Cause.CRASHED,
    signal.SIGILL: Cause.ILLEGAL_INSTRUCTION,
}


@dataclass(frozen=True)
class Ending:
    """The end of one process.

    Attributes:
        cause: What ended it.
        exit_code: Its exit status; None if a signal ended it.
        signal: The signal's name, "SIGKILL"; None if it exited.
        evidence: What the out-of-memory counters did; None where they did nothing or do not matter.
        isa: The instruction set level the program was built for, if it was told.
    """

    cause: Cause
    exit_code: int | None = None
    signal: str | None = None
    evidence: str | None = None
    isa: str | None = None

    @property
    def clean(self) -> bool:
        return self.cause is Cause.EXIT and self.exit_code == 0

    def __str__(self) -> str:
        """A predicate to follow the process's name: "was killed by SIGKILL"."""
        match self.cause:
            case Cause.EXIT:
                return f"exited with code {self.exit_code}"
            case Cause.OUT_OF_MEMORY:
                return f"was killed by the out-of-memory killer ({self.signal}; {self.evidence})"
            case Cause.ABORTED | Cause.CRASHED:
                return f"{self.cause} ({self.signal})"
            case Cause.ILLEGAL_INSTRUCTION:
                level = f"ISA level {self.isa}" if self.isa else "the ISA level it was built for"
                return f"was stopped at an illegal instruction ({self.signal}): this CPU lacks an instruction of {level}"
            case Cause.UNREADABLE_FILE:
                return f"was ended by the kernel ({self.signal}): a file that it reads its weights from shrank or cannot be read"
            case Cause.SIGNALLED:
                aside = f" (while it ran, the {self.evidence})" if self.evidence else ""
                return f"was killed by {self.signal}{aside}"

    @property
    def remedy(self) -> str:
        """What to do about it."""
        match self.cause:
            case Cause.OUT_OF_MEMORY:
                return "free memory or raise the limit, or give the stage fewer layers, sessions or context in the recipe"
            case Cause.ILLEGAL_INSTRUCTION:
                return "build for this CPU: dgrctl build --lane cpu --isa LEVEL"
            case Cause.UNREADABLE_FILE:
                return "find out who changed the model's files; dgrctl model verify names the file that is wrong"
            case Cause.SIGNALLED:
                return "find out who sent the signal, then run the command again; nothing has to be cleaned up"
            case _:
                return "read its last words; the same command starts afresh"


def classify(status: int, oom: Verdict | None, isa: str | None = None) -> Ending:
    """What a wait status means.

    Args:
        status: As :class:`subprocess.Popen` gives it: the exit code, or minus the signal's number.
        oom: The counters' verdict, for a process that SIGKILL ended.
    """
    if status >= 0:
        return Ending(Cause.EXIT, exit_code=status)
    number = -status
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL and oom is not None:
        cause = Cause.OUT_OF_MEMORY if oom.killed else Cause.SIGNALLED
        return Ending(cause, signal=name, evidence=oom.evidence)
    cause = _BY_SIGNAL.get(signal.Signals(number), Cause.SIGNALLED) if number in set(signal.Signals) else Cause.SIGNALLED
    return Ending(cause, signal=name, isa=isa)
