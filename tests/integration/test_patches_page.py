"""docs/patches.md: its shell blocks, one after the other, on a small checkout."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from upstream_checkout import FILES, Checkout

from dgrctl.errors import DgrError
from dgrctl.upstream.git import run_git
from dgrctl.upstream.manifest import load_manifest
from dgrctl.upstream.stack import verify_workspace

PAGE = Path(__file__).parents[2] / "docs" / "patches.md"
CORE = FILES["src/llama.cpp"]

# What a person does in an editor: a line added, or the conflict resolved in favour of upstream's line and ours.
_EDITOR = """#!/bin/sh
case "$1" in
  */git-rebase-todo | */COMMIT_EDITMSG) exit 0 ;;
esac
if grep -q '^<<<<<<<' "$1"; then sed -i '/^<<<<<<<\\|^=======\\|^>>>>>>>/d' "$1"; else echo '// edited' >> "$1"; fi
"""


def releases(checkout: Checkout) -> None:
    """Upstream's next versions: one that only moves lines, one that conflicts, and some after it."""
    pin = checkout.commit
    checkout.advance({"src/llama.cpp": b"// x\n" * 7 + CORE})
    checkout.upstream.run("tag", "v0.6.0")
    checkout.advance({"src/llama.cpp": b"// x\n" * 7 + CORE.replace(b"line_30(", b"line_x(")})
    checkout.upstream.run("tag", "v0.7.0")
    for number in range(4):
        checkout.advance({"README.md": b"%d\n" % number})
    checkout.upstream.run("tag", "v0.9.0")
    checkout.upstream.run("checkout", "--quiet", "v0.6.0")
    checkout.upstream.run("bundle", "create", "--quiet", str(checkout.layout.root / "llama-v0.6.0.bundle"), "HEAD")
    checkout.upstream.run("checkout", "--quiet", pin)


def test_commands_of_the_page(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "stacked")
    root = checkout.layout.root
    releases(checkout)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dgrctl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dgrctl "$@"\n')
    (programs / "editor").write_text(_EDITOR)
    for program in programs.iterdir():
        program.chmod(0o755)
    (root / ".gitignore").write_text(".dgr/\n*.bundle\n*.patch\n!patches/**\n")
    for words in (("init", "--quiet", "."), ("add", "."), ("-c", "user.name=T", "-c", "user.email=t@t", "commit", "-qm", "All")):
        run_git(*words, raises=DgrError, cwd=root)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 10
    environment = checkout.environment(
        PATH=f"{programs}:/usr/bin:/bin",
        EDITOR=str(programs / "editor"),
        GIT_EDITOR=str(programs / "editor"),
        HOME=str(tmp_path),
        GIT_CONFIG_COUNT="2",
        GIT_CONFIG_KEY_0="user.name",
        GIT_CONFIG_VALUE_0="T",
        GIT_CONFIG_KEY_1="user.email",
        GIT_CONFIG_VALUE_1="t@example.org",
    )
    for block in blocks:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert load_manifest(checkout.layout).commit == checkout.upstream.resolve("v0.7.0")
    stack = verify_workspace(checkout.layout)
    assert (stack.applied, len(stack.patches)) == (True, 4)
