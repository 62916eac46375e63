"""Random damage to patches and lock: always a clear refusal, and never a stack called applied that is not the lock's."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from upstream_checkout import Checkout

from dgrctl.errors import DgrError
from dgrctl.upstream.lint import lint
from dgrctl.upstream.series import LOCK_NAME
from dgrctl.upstream.stack import PatchStatus, apply, status, verify_workspace

MUTATIONS = 500


def damage(generator: random.Random, data: bytes) -> bytes:
    """One or a few changes: bytes flipped, removed, doubled, inserted; lines swapped, dropped; hex digits exchanged."""
    kind = generator.choice(["flip", "cut", "drop", "double", "insert", "swap", "hex", "number"])
    at = generator.randrange(len(data))
    lines = data.splitlines(keepends=True)
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (1 << generator.randrange(8))]) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    if kind == "insert":
        return data[:at] + generator.randbytes(generator.randint(1, 9)) + data[at:]
    if kind in ("hex", "number"):
        digits = b"0123456789abcdef" if kind == "hex" else b"0123456789"
        places = [place for place, byte in enumerate(data) if byte in digits]
        place = generator.choice(places)
        return data[:place] + bytes([generator.choice(digits)]) + data[place + 1 :]
    number = generator.randrange(len(lines))
    other = generator.randrange(len(lines))
    if kind == "drop":
        del lines[number]
    elif kind == "double":
        lines.insert(number, lines[number])
    else:
        lines[number], lines[other] = lines[other], lines[number]
    return b"".join(lines)


def test_random_mutations(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    original = checkout.patch_files()
    good = verify_workspace(checkout.layout)
    generator = random.Random(20260101)
    refused = 0
    for number in range(MUTATIONS):
        # The lock, where everything else hangs, in every second round.
        name = LOCK_NAME if number % 2 else generator.choice(sorted(original))
        damaged = damage(generator, original[name])
        path = checkout.layout.patches / name
        path.write_bytes(damaged)
        if number % 50 == 0:
            shutil.rmtree(checkout.layout.workspace, ignore_errors=True)
        result = attempt(checkout)
        # Lint sees the files only: what applying would give is beyond it.
        unseen = isinstance(result, DgrError) and result.what.startswith("the patches give tree")
        assert bool(lint(checkout.layout).findings) == (isinstance(result, DgrError) and not unseen), (name, damaged)
        if isinstance(result, DgrError):
            refused += 1
            assert result.remedy, (result.what, name, damaged)
            assert name in f"{result.where}", (result.where, name, damaged)
            assert not is_called_applied(checkout)
        else:
            # White space in JSON, or the same byte again.
            assert (result.head, result.tree, result.stack_digest) == (good.head, good.tree, good.stack_digest), damaged
            assert damaged == original[name] or name == LOCK_NAME
        path.write_bytes(original[name])
    assert refused > MUTATIONS * 0.8
    assert apply(checkout.layout).applied


def attempt(checkout: Checkout) -> PatchStatus | DgrError:
    """Anything but a DgrError would be a traceback, and fails the test."""
    try:
        return apply(checkout.layout)
    except DgrError as error:
        return error


def is_called_applied(checkout: Checkout) -> bool:
    try:
        return status(checkout.layout).applied
    except DgrError:
        return False
