"""A program that behaves, well or badly, like the served ones do. A real process for the tests of supervision.

    python -I -S served_program.py BEHAVIOUR

It needs nothing but the standard library and starts in some milliseconds.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

READY = {"event": "ready", "address": "127.0.0.1:40000", "pid": os.getpid()}


def say(message: object) -> None:
    print(json.dumps(message), flush=True)


def serve_until_eof() -> None:
    """Like --supervisor: the lifeline ends it; so does SIGTERM."""
    sys.stdin.buffer.read()
    sys.exit(0)


def die_of(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)


def ready() -> None:
    say(READY)
    serve_until_eof()


def never() -> None:
    serve_until_eof()


def closes_stdout() -> None:
    os.close(1)
    serve_until_eof()


def garbage() -> None:
    print("hello, I am not JSON \x1b[31m", flush=True)
    serve_until_eof()


def not_utf8() -> None:
    os.write(1, b'{"event": "ready", "address": "\xff", "pid": 1}\n')
    serve_until_eof()


def unknown_field() -> None:
    say({**READY, "surprise": True})
    serve_until_eof()


def wrong_pid() -> None:
    say({**READY, "pid": 1})
    serve_until_eof()


def endless_line() -> None:
    while True:
        os.write(1, b"x" * 65536)


def half_line() -> None:
    os.write(1, json.dumps(READY).encode()[:20])
    sys.exit(7)


def refuses() -> None:
    say(
        {"event": "error", "code": "FAILED_PRECONDITION", "message": "the model is of architecture 'gpt2'", "remedy": "use llama"}
    )
    sys.exit(3)


def out_of_room() -> None:
    say({"event": "error", "code": "RESOURCE_EXHAUSTED", "message": "the cache needs 9 GiB"})
    sys.exit(3)


def logs_then_exits() -> None:
    for line in range(100):
        print(f"log line {line}", file=sys.stderr)
    sys.exit(7)


def aborts() -> None:
    print("assertion failed: il < n_layer", file=sys.stderr, flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


def crashes() -> None:
    die_of(signal.SIGSEGV)


def illegal_instruction() -> None:
    die_of(signal.SIGILL)


def ready_then_aborts() -> None:
    say(READY)
    aborts()


def ignores_everything() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(READY)
    while True:
        time.sleep(3600)


def leaves_a_child_with_stdout() -> None:
    """Dies without a word, while its own child keeps the pipe open until the lifeline ends."""
    if os.fork() == 0:
        serve_until_eof()
    die_of(signal.SIGKILL)


def shows_itself() -> None:
    """Tells on stderr what it inherited, then serves."""
    names = [path for path in Path("/proc/self/fd").iterdir() if path.exists()]
    shown = {
        "descriptors": sorted(int(path.name) for path in names if int(path.name) > 2),
        "group": os.getpgid(0) == os.getpid(),
        "environment": sorted(os.environ),
    }
    print(json.dumps(shown), file=sys.stderr, flush=True)
    ready()


def eats_memory() -> None:
    """Once it is told to by SIGUSR1, without end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    say(READY)
    signal.sigwait({signal.SIGUSR1})
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1024) * 1024))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
