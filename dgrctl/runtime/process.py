"""A served program (worker or reference) as a child of this process: start, readiness, death, end.

No child outlives this process, however this process ends and whatever state the child is in. Three things see to it:

- The child asks the kernel for SIGKILL when its parent dies (PR_SET_PDEATHSIG), which ends a stopped process, too. It compares
  its parent's id afterwards, because the parent may have died before. The kernel acts when the *thread* that started the child
  ends, so the main thread starts them all.
- The child's stdin is its lifeline: a pipe that nobody writes to. When this process dies, the kernel closes the pipe, and the
  child ends itself.
- The keeper ends a child that is stopped before it could ask (:mod:`dgrctl.offspring`).

The child has its own process group, so that Ctrl-C reaches this process alone and the children end once, in order.

Death is watched through a pidfd, which becomes readable the moment the process is dead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from dgrctl.errors import AdmissionError, BuildError, DgrError, InputError, StageError, ToolchainError
from dgrctl.files import storage_errors
from dgrctl.offspring import marked
from dgrctl.runtime.endings import Ending, classify
from dgrctl.runtime.oom import OomWatch
from dgrctl.runtime.ready import MAX_LINE_BYTES, Ready, Refused, parse_line
from dgrctl.runtime.runlog import tail

# A killed process can take a moment to give back its memory; one that takes longer hangs in the kernel.
_KILL_SECONDS = 30.0
# What a process that has closed its stdout may take to exit.
_LAST_WORDS_SECONDS = 1.0
# Variables that would change what the programs compute or whom they talk to.
_SCRUBBED = ("GRPC_", "GGML_", "LLAMA_", "OMP_")
_PROXIES = {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"}
# What a program's reason not to serve means here, and what to do where it does not say.
_REFUSALS: dict[str, tuple[type[DgrError], str]] = {
    "INVALID_ARGUMENT": (InputError, "correct the recipe, or use another model"),
    "FAILED_PRECONDITION": (InputError, "correct the recipe, or use another model"),
    "NOT_FOUND": (InputError, "pull the model again: dgrctl model pull"),
    "RESOURCE_EXHAUSTED": (AdmissionError, "lower sessions or context in the recipe, or give the stage fewer layers"),
    "UNAVAILABLE": (StageError, "choose another port, or 0 for any; ss -ltnp shows who listens"),
}


class ServedProcess:
    """One running program. Made by :meth:`spawn`; :meth:`stop` ends it; thread-safe.

    Attributes:
        title: How messages name it: "stage 1 (layers 15:30)".
        log: The file that takes its stderr; None where it shares this process's.
    """

    def __init__(self, title: str, process: subprocess.Popen[bytes], log: Path | None, isa: str | None) -> None:
        self.title = title
        self.log = log
        self._process = process
        self._isa = isa
        os.set_blocking(self.stdout, False)
        self._pidfd = os.pidfd_open(process.pid)
        self._oom = OomWatch(process.pid)
        self._output = bytearray()
        self._ready: Ready | None = None
        self._ending: Ending | None = None
        self._lock = threading.Lock()

    @classmethod
    def spawn(cls, title: str, command: Sequence[str], *, log: Path | None, isa: str | None = None) -> ServedProcess:
        """Starts ``command``, whose first element is the program's path. For the main thread alone: see above.

        Raises:
            BuildError: the program is missing or cannot be executed.
            StageError: this machine has no room for another process.
            ToolchainError: this system has no pidfd.
            StorageError: the log cannot be written.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"{title} would end with the thread that starts it; start it from the main thread")
        if not hasattr(os, "pidfd_open"):
            raise ToolchainError("this system cannot watch processes", where="pidfd_open", remedy="use Linux 5.3 or newer")
        with contextlib.ExitStack() as stack:
            stderr: IO[bytes] | None = None
            if log is not None:
                with storage_errors(log):
                    stderr = stack.enter_context(log.open("wb"))
            try:
                process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    cwd="/" if log is None else log.parent,
                    env=marked(_environment()),
                    process_group=0,
                    bufsize=0,
                )
            except OSError as error:
                raise _not_started(title, command[0], error) from error
        try:
            return cls(title, process, log, isa)
        except BaseException:
            process.kill()
            process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str:
        """host:port it serves on; only after it is ready."""
        if self._ready is None:
            raise RuntimeError(f"{self.title} is not ready")
        return self._ready.address

    @property
    def pidfd(self) -> int:
        """Readable once the process is dead."""
        return self._pidfd

    @property
    def stdout(self) -> int:
        """Descriptor that its ready line arrives on."""
        if self._process.stdout is None:
            raise RuntimeError(f"{self.title} has no pipe on stdout")
        return self._process.stdout.fileno()

    @property
    def stopped(self) -> bool:
        """Whether it is alive but suspended (SIGSTOP, a debugger)."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in {"T", "t"}

    def read_ready_line(self) -> bool:
        """Takes what has arrived on stdout; to be called when :attr:`stdout` or :attr:`pidfd` is readable.

        Returns:
            Whether it is ready.

        Raises:
            DgrError: it refused to serve, wrote something else, closed stdout, or died.
        """
        try:
            chunk = os.read(self.stdout, MAX_LINE_BYTES)
        except BlockingIOError:
            # Woken by its death, while another process of its making keeps stdout open.
            ending = self.wait(0)
            if ending is not None:
                raise self.death(ending) from None
            return False
        self._output += chunk
        line, newline, _ = bytes(self._output).partition(b"\n")
        if len(line) > MAX_LINE_BYTES:
            raise self._misspoke(f"wrote no line end in its first {MAX_LINE_BYTES} bytes on stdout")
        if not newline:
            if chunk:
                return False
            ending = self.wait(_LAST_WORDS_SECONDS)
            raise self.death(ending) if ending is not None else self._misspoke("closed its stdout before it was ready")
        self._accept(line)
        return True

    def _accept(self, line: bytes) -> None:
        try:
            message = parse_line(line)
        except ValueError as error:
            raise self._misspoke(f"does not speak the protocol: {error}") from error
        if isinstance(message, Refused):
            raise self._refusal(message)
        if message.pid != self.pid:
            raise self._misspoke(f"says that it is process {message.pid}, but {self.pid} was started")
        self._ready = message
        moved = OomWatch(self.pid)
        if self.wait(0) is None:
            self._oom = moved

    def wait(self, timeout: float | None = None) -> Ending | None:
        """Waits for its death, at most ``timeout`` seconds; None if it still lives then."""
        if self._ending is None:
            watch = select.poll()
            watch.register(self._pidfd, select.POLLIN)
            if not watch.poll(None if timeout is None else max(0.0, timeout) * 1000):
                return None
            with self._lock:
                if self._ending is None:
                    status = self._process.wait()
                    verdict = self._oom.verdict() if status == -signal.SIGKILL else None
                    self._ending = classify(status, verdict, self._isa)
        return self._ending

    def death(self, ending: Ending) -> StageError:
        """The error that says how it ended, with its last words."""
        return StageError(f"{self.title} {ending}", where=self.where, remedy=ending.remedy, detail=tail(self.log))

    def ask_to_end(self) -> None:
        """Lets go of the lifeline and sends SIGTERM. Does not wait."""
        if self.wait(0) is None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._send(signal.SIGTERM)

    def stop(self, grace: float) -> Ending:
        """Ends it: asks, and kills it if it lives on after ``grace`` seconds, if it is suspended, or if this wait is interrupted.

        Raises:
            StageError: the kernel does not let it die.
        """
        try:
            self.ask_to_end()
            if not self.stopped:
                self.wait(grace)
        finally:
            if self.wait(0) is None:
                self._send(signal.SIGKILL)
            ending = self.wait(_KILL_SECONDS)
            if ending is not None:
                self._release()
        if ending is None:
            raise StageError(
                f"{self.title} does not die after SIGKILL", where=self.where, remedy="look for a hanging disk or device driver"
            )
        return ending

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _release(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    @property
    def where(self) -> str:
        """Process, address and log, for messages."""
        place = f"process {self.pid}"
        if self._ready is not None:
            place += f" at {self._ready.address}"
        return place if self.log is None else f"{place}, log {self.log}"

    def _misspoke(self, why: str) -> StageError:
        ending = self.wait(0)
        then = f", and {ending}" if ending is not None else ""
        return StageError(
            f"{self.title} {why}{then}", where=self.where, remedy="build it again: dgrctl build", detail=tail(self.log)
        )

    def too_slow(self, seconds: float) -> StageError:
        """The error that says that it was not ready in time."""
        return StageError(
            f"{self.title} is not ready after {seconds:g} s",
            where=self.where,
            remedy="read its log; give it more time if the model's disk is slow",
            detail=tail(self.log),
        )

    def _refusal(self, message: Refused) -> DgrError:
        kind, remedy = _REFUSALS.get(message.code, (StageError, "read its log, then run the command again"))
        return kind(
            f"{self.title} refuses to start: {message.message}",
            where=self.where,
            remedy=message.remedy or remedy,
            detail=tail(self.log),
        )


def await_ready(processes: Sequence[ServedProcess], timeout: float) -> None:
    """Waits until every process is ready.

    Raises:
        DgrError: one of them refused, died, or was not ready within ``timeout`` seconds. The others go on; stop them.
    """
    deadline = time.monotonic() + timeout
    owners = {descriptor: process for process in processes for descriptor in (process.stdout, process.pidfd)}
    watch = select.poll()
    for descriptor in owners:
        watch.register(descriptor, select.POLLIN)
    waiting = list(processes)
    while waiting:
        events = watch.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not events:
            raise waiting[0].too_slow(timeout)
        for process in dict.fromkeys(owners[descriptor] for descriptor, _ in events):
            ending = process.wait(0) if process not in waiting else None
            if ending is not None:
                raise process.death(ending)
            if process in waiting and process.read_ready_line():
                watch.unregister(process.stdout)
                waiting.remove(process)


def stop_all(processes: Sequence[ServedProcess], grace: float) -> None:
    """Ends all of them: each is asked first, then waited for, ``grace`` seconds for all. None is left, whatever fails."""
    for process in processes:
        process.ask_to_end()
    deadline = time.monotonic() + grace

    def stop(process: ServedProcess) -> None:
        process.stop(deadline - time.monotonic())

    with contextlib.ExitStack() as stack:
        for process in reversed(processes):
            stack.callback(stop, process)


def _not_started(title: str, program: str, error: OSError) -> DgrError:
    what = f"{title} cannot be started: {error.strerror}"
    if error.errno in {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}:
        return StageError(what, where=program, remedy="end other programs, or raise the limits on processes, files and memory")
    return BuildError(what, where=program, remedy="build it again: dgrctl build")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED) and name.lower() not in _PROXIES}
