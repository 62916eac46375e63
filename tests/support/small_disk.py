"""A disk of a few megabytes for one folder of a checkout, in a mount namespace of its own."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from upstream_checkout import Checkout

from dgrctl.errors import StorageError

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def on_small_disk(checkout: Checkout, folder: Path, size: str, script: str) -> subprocess.CompletedProcess[str]:
    """Runs ``script`` where ``folder``, with what it holds, lies on a tmpfs of ``size``; the end state is copied back."""
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace can be made on this machine: {probe.stderr.strip()}")
    place, back = shlex.quote(str(folder)), shlex.quote(f"{folder}.back")
    folder.mkdir(parents=True, exist_ok=True)
    whole = (
        f"cp -a {place} {back} && mount -t tmpfs -o size={size} tmpfs {place} && cp -a {back}/. {place} || exit 99\n"
        f"rm -r {back}\n{script}\nrm -f {place}/filler; cp -a {place} {back}"
    )
    done = subprocess.run(
        [*NAMESPACE, "bash", "-c", whole],
        capture_output=True,
        text=True,
        env=checkout.environment(DGR_STORAGE=str(folder)),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    subprocess.run(["rm", "-r", str(folder)], check=True)
    Path(f"{folder}.back").rename(folder)
    return done


# What a script prints after a command that found the disk full or read-only.
FULL = f"code {StorageError.exit_code}\n"
