"""The ledger and the key under kills, a full disk and many writers."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from certifications import certification, make_checkout, the_lock

from dgrctl.errors import StorageError
from dgrctl.evidence.issue import write_certification
from dgrctl.evidence.keys import KEY_VARIABLE, init_local_key, load_key, local_key_path, signing_key
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Intent
from dgrctl.layout import Layout

# Appends intents for ever, or as many as it is told, and says so after each.
WRITER = """
import sys
from pathlib import Path
from certifications import certification, the_lock
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Intent
from dgrctl.layout import Layout
layout = Layout(Path(sys.argv[1]))
intent = Intent.of(certification(the_lock(layout)))
for _ in range(int(sys.argv[2])):
    print(Ledger(layout).intent(new_nonce(), intent).sha256, flush=True)
"""


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    return make_checkout(tmp_path / "checkout")


def writer(layout: Layout, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", WRITER, str(layout.root), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


def limited_to(size: int) -> tuple[int, int]:
    """Makes files of this process end at ``size`` bytes, as a full disk would; returns what to restore."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return before


def test_many_writers_make_one_chain(layout: Layout) -> None:
    writers = [writer(layout, 8) for _ in range(4)]
    outputs = [process.communicate()[0].split() for process in writers]
    assert [process.returncode for process in writers] == [0] * 4
    chain = Ledger(layout).verify()
    assert len(chain.records) == 32
    assert {digest for output in outputs for digest in output} == set(chain.digests)


def test_a_writer_killed_at_any_moment_leaves_a_ledger_that_goes_on(layout: Layout) -> None:
    """What was acknowledged is there; what was not may be there, torn, or absent."""
    acknowledged: set[str] = set()
    for lines in range(1, 7):
        process = writer(layout, 10_000)
        assert process.stdout is not None
        for _ in range(lines):
            acknowledged.add(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        acknowledged |= set(process.communicate()[0].split())
        assert acknowledged <= set(Ledger(layout).verify().digests)
    before = len(Ledger(layout).verify().records)
    Ledger(layout).intent(new_nonce(), Intent.of(certification(the_lock(layout))))
    assert len(Ledger(layout).verify().records) == before + 1


@pytest.mark.parametrize("room", [0, 1, 100, 500])
def test_a_full_disk_appends_nothing(layout: Layout, room: int) -> None:
    intent = Intent.of(certification(the_lock(layout)))
    Ledger(layout).intent(new_nonce(), intent)
    before = layout.ledger.read_bytes()
    limits = limited_to(len(before) + room)
    try:
        with pytest.raises(StorageError) as caught:
            Ledger(layout).intent(new_nonce(), intent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.remedy
    assert layout.ledger.read_bytes() == before
    Ledger(layout).intent(new_nonce(), intent)
    assert len(Ledger(layout).verify().records) == 2


def test_a_torn_line_set_aside_by_a_failed_append_is_still_recorded(layout: Layout) -> None:
    intent = Intent.of(certification(the_lock(layout)))
    Ledger(layout).intent(new_nonce(), intent)
    with layout.ledger.open("ab") as file:
        file.write(b'{"body":{"build')
    limits = limited_to(layout.ledger.stat().st_size)
    try:
        with pytest.raises(StorageError):
            Ledger(layout).intent(new_nonce(), intent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    Ledger(layout).intent(new_nonce(), intent)
    (kept,) = Ledger(layout).verify().records[-1].set_aside
    assert (layout.certs / kept.file).read_bytes() == b'{"body":{"build'


def test_evidence_on_a_full_disk_is_absent_and_its_run_unfinished(layout: Layout) -> None:
    nonce, key = new_nonce(), signing_key(layout)
    place = Ledger(layout).intent(nonce, Intent.of(certification(the_lock(layout), nonce=nonce)))
    found = certification(the_lock(layout), nonce=nonce, intent=place)
    limits = limited_to(2000)
    try:
        with pytest.raises(StorageError):
            write_certification(layout, found, key)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(layout.evidence.rglob("*")) == [layout.evidence / "cpu"]
    assert Ledger(layout).verify().runs()[0].ending is None
    assert write_certification(layout, found, key).is_file()


def test_a_key_on_a_full_disk_is_absent(layout: Layout) -> None:
    layout.locks.mkdir(parents=True)
    limits = limited_to(10)
    try:
        with pytest.raises(StorageError):
            init_local_key(layout)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(layout.keys.iterdir()) == []
    assert init_local_key(layout)


def test_two_inits_at_once_make_one_key(layout: Layout) -> None:
    program = (
        "import sys; from pathlib import Path; from dgrctl.layout import Layout; "
        "from dgrctl.evidence.keys import signing_key; print(signing_key(Layout(Path(sys.argv[1]))).keyid)"
    )
    command = [sys.executable, "-c", program, str(layout.root)]
    makers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(4)]
    keyids = {maker.communicate()[0].strip() for maker in makers}
    assert keyids == {load_key(local_key_path(layout)).keyid}
