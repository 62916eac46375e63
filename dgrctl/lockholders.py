"""Who holds a lock file, in words for whoever waits: process, command, state, since when, and what stands in its way.

The kernel lists the holders in /proc/locks (proc_locks(5)). The record in the lock file adds the command line and the time. Only
a dgrctl that holds the lock alone writes one.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

_STATES = {"R": "running", "S": "running", "D": "waiting for a disk", "T": "stopped", "t": "stopped by a debugger"}
_COMMAND_CHARACTERS = 100
_SUPERVISOR = "--supervisor"


@dataclass(frozen=True)
class Holder:
    """One process that holds a lock.

    Attributes:
        state: "running", "stopped", "waiting for a disk", …
        since: When it took the lock, or, where nobody wrote that down, when it started. ISO 8601, UTC.
        trouble: Why it may never let go, and None where nothing speaks for that.
        remedy: What to do about that trouble.
    """

    pid: int
    command: str
    state: str
    since: str | None = None
    trouble: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        facts = [self.command, self.state, *([f"since {self.since}"] if self.since else [])]
        return f"process {self.pid} ({', '.join(facts)})"

    def as_dict(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class _Record:
    pid: int
    host: str
    command: str
    since: str


def write_record(descriptor: int, command: str) -> None:
    """Writes into a lock file who holds it."""
    record = {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "command": command,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # On a full disk, or in another user's file, the lock holds all the same. Only its message to those who wait is poorer.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)


def holders(path: Path) -> list[Holder]:
    """The processes that hold the lock file ``path``; empty where nobody can tell."""
    record = _read_record(path)
    if record is not None and record.host != os.uname().nodename:
        return [Holder(record.pid, record.command, f"on the machine {record.host}", record.since)]
    listed = [pid for waits, pid in _listed(path) if not waits]
    alive = [holder for pid in listed if (holder := _look(pid, record)) is not None]
    if alive:
        return alive
    # The kernel names the process that took the lock. If it has ended, its children hold the lock: they have the file open.
    return [holder for pid in _with_open(path) if (holder := _look(pid, record)) is not None]


def waiting_pids(path: Path) -> set[int]:
    """The processes that wait for the lock file ``path`` right now, as far as the kernel lists them."""
    return {pid for waits, pid in _listed(path) if waits}


def _listed(path: Path) -> list[tuple[bool, int]]:
    """Lines of /proc/locks about ``path``: whether that process waits, and its number."""
    found = []
    try:
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            waits = words[1] == "->"
            kind, _, _, pid, file = words[2:7] if waits else words[1:6]
            if kind == "FLOCK" and int(file.rpartition(":")[2]) == inode:
                found.append((waits, int(pid)))
    except (OSError, ValueError, IndexError):
        return []
    return found


def _with_open(path: Path) -> list[int]:
    """Other processes that have ``path`` open, as far as this user may look."""
    found = []
    with contextlib.suppress(OSError):
        wanted = path.stat()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if any(os.path.samestat(entry.stat(), wanted) for entry in (folder / "fd").iterdir()):
                        found.append(int(folder.name))
    return sorted(found)


def _look(pid: int, record: _Record | None) -> Holder | None:
    """A process as a holder; None if it does not live."""
    status = _status(pid)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    except OSError:
        return None
    if status is None or not words:
        return None
    letter, parent = status[0], int(status[1])
    state = _STATES.get(letter, letter)
    since: str | None
    if record is not None and record.pid == pid:
        command, since = record.command, record.since
    else:
        # Program and script come first; what was asked of them follows.
        command = " ".join([Path(word).name for word in words[:2]] + words[2:])
        since = _started(status)
    if len(command) > _COMMAND_CHARACTERS:
        command = command[:_COMMAND_CHARACTERS] + "…"
    trouble = remedy = None
    supervisor = words[words.index(_SUPERVISOR) + 1] if _SUPERVISOR in words[:-1] else None
    if supervisor is not None and supervisor != str(parent):
        trouble, remedy = "the dgrctl that started it has ended", f"kill -KILL {pid} ends it"
    elif letter in "Tt":
        trouble, remedy = f"it is {state}", f"kill -CONT {pid} lets it go on; kill -KILL {pid} ends it"
    elif record is not None and record.pid != pid and _status(record.pid) is None:
        trouble = f"process {record.pid} ({record.command}), which started it, has ended and left it running"
        remedy = f"wait until it ends; kill -KILL {pid} ends it at once"
    return Holder(pid, command, state, since, trouble, remedy)


def _status(pid: int) -> list[str] | None:
    """The fields of a stat file that follow the name; None for a process that is dead, though its parent may not know yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if status[0] in "ZX" else status


def _started(status: list[str]) -> str | None:
    """When a process started, from the fields of its stat file that follow its name."""
    try:
        ticks = int(status[19]) / os.sysconf("SC_CLK_TCK")
        seconds = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _read_record(path: Path) -> _Record | None:
    try:
        record = json.loads(path.read_bytes())
        return _Record(int(record["pid"]), str(record["host"]), str(record["command"]), str(record["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
