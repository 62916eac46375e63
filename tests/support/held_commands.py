"""Commands that run at the same time, one of them stopped where a test wants it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from upstream_checkout import Checkout


def start(checkout: Checkout, *arguments: str, **options: str) -> subprocess.Popen[str]:
    command = checkout.command(*arguments, **options)
    return subprocess.Popen(command, env=checkout.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def held(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A command in mode "hold": it has come to its step, and waits before it until something is sent to the socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            command,
            env={**environment, "HELD_FD": str(theirs.fileno())},
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                theirs.close()
                assert ours.recv(4) == b"held"
                yield process, ours
            finally:
                process.kill()


def holding(
    checkout: Checkout, step: str, *arguments: str
) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], socket.socket]]:
    """A command of that checkout, held before ``step``."""
    return held(checkout.command(*arguments, mode="hold", step=step), checkout.environment())


def waits_for(second: subprocess.Popen[str], first: subprocess.Popen[str]) -> None:
    assert second.stderr is not None
    assert f"waiting for process {first.pid} (dgrctl " in second.stderr.readline()
