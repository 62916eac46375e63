"""Model storage that two users share: what is whole needs no lock and no right to write. Locks are shared as their folder is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_models import MODEL_ID, TinyModel, make_tiny_model

from dgrctl.artifacts.provision import provision
from dgrctl.artifacts.synth.deepseek4 import DeepSeek4
from dgrctl.artifacts.synth.make import synthesise
from dgrctl.errors import DgrError
from dgrctl.statelock import file_lock

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Users and a group that need no entry in /etc/passwd.
FIRST, SECOND, GROUP = 61001, 61002, 61003


@pytest.fixture
def tiny() -> Iterator[TinyModel]:
    """A checkout that every user can read. (The folders of tmp_path are for root alone.)"""
    root = Path(tempfile.mkdtemp(prefix="dgr-shared."))
    try:
        root.chmod(0o755)
        yield make_tiny_model(root / "checkout")
    finally:
        shutil.rmtree(root)


def as_user(user: int, call: Callable[[], object]) -> str:
    """Runs ``call`` in a child that is ``user``, with the usual umask; returns what went wrong, and nothing if all went well."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([GROUP])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o022)
            call()
        except DgrError as error:
            os.write(writing, f"{error.what} ({error.where})".encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        problem = pipe.read().decode()
    os.waitpid(pid, 0)
    return problem


def test_the_locks_of_one_user_can_be_taken_by_another(tiny: TinyModel) -> None:
    storage = tiny.layout.root / "storage"
    storage.mkdir()
    os.chown(storage, FIRST, GROUP)
    storage.chmod(0o2775)

    def lock() -> None:
        with file_lock(storage / ".locks" / f"{MODEL_ID}.lock", "model", waiting=pytest.fail):
            pass

    def lock_another() -> None:
        with file_lock(storage / ".locks" / "other.lock", "model", waiting=pytest.fail):
            pass

    assert not as_user(FIRST, lock)
    assert not as_user(SECOND, lock)
    assert not as_user(SECOND, lock_another)


def test_a_lock_file_that_another_user_made_for_himself_can_be_taken(tiny: TinyModel) -> None:
    """Versions before this one made such files."""
    locks = tiny.layout.root / "storage" / ".locks"
    locks.mkdir(parents=True)
    (locks / "model.lock").touch(mode=0o644)

    def lock() -> None:
        with file_lock(locks / "model.lock", "model", waiting=pytest.fail):
            pass

    assert not as_user(SECOND, lock)


@pytest.mark.parametrize("mode", [0o755, 0o2775])
def test_a_complete_model_needs_no_lock_and_no_write(tiny: TinyModel, mode: int) -> None:
    tiny.put()
    storage = tiny.folder.parent
    os.chown(storage, FIRST, GROUP)
    storage.chmod(mode)
    # What another user left, with rights for nobody else.
    (storage / ".locks").mkdir()
    (storage / ".locks" / f"{MODEL_ID}.lock").touch(mode=0o600)
    (storage / ".locks").chmod(0o700)
    provision(tiny.layout, MODEL_ID)  # loads what the other user may not be able to read: this Python
    before = sorted(tiny.layout.root.rglob("*"))
    assert not as_user(SECOND, lambda: provision(tiny.layout, MODEL_ID))
    assert sorted(tiny.layout.root.rglob("*")) == before


def test_a_complete_fixture_needs_no_lock_and_no_write(tiny: TinyModel) -> None:
    fixture = DeepSeek4(layers=4, seed=1, weights="f32", embedding=64)
    made = synthesise(tiny.layout, fixture)
    assert made.made
    assert not synthesise(tiny.layout, fixture).made
    (tiny.layout.default_storage / ".locks").chmod(0o700)

    def again() -> None:
        if synthesise(tiny.layout, fixture).made:
            pytest.fail("it was made again")

    assert not as_user(SECOND, again)
