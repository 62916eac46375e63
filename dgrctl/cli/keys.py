"""``dgrctl keys``: the key that signs evidence on this machine."""

from __future__ import annotations

import typer

from dgrctl.cli.groups import NearestGroup
from dgrctl.cli.options import Json, examples
from dgrctl.layout import Layout

app = typer.Typer(add_completion=False, cls=NearestGroup, help="Make or show the key that signs evidence on this machine.")


@app.command(epilog=examples("dgrctl keys init"))
def init() -> int:
    """Make the local development key, unless there is one."""
    from dgrctl.console import note
    from dgrctl.evidence.keys import KEY_VARIABLE, init_local_key, local_key_path, signing_key_path

    layout = Layout.find()
    path = local_key_path(layout)
    made = init_local_key(layout)
    note(f"made {path}, mode 0600; it vouches for this machine only" if made else f"nothing to do: {path} is there")
    if signing_key_path(layout) != path:
        note(f"{KEY_VARIABLE} names another key, which signs instead: {signing_key_path(layout)}")
    return 0


@app.command(epilog=examples("dgrctl keys show", "dgrctl keys show --json"))
def show(as_json: Json = False) -> int:
    """Show the public half of the signing key."""
    from dgrctl.console import emit_json
    from dgrctl.evidence.keys import load_key, signing_key_path
    from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY

    layout = Layout.find()
    key = load_key(signing_key_path(layout))
    shown = {
        "keyid": key.keyid,
        "algorithm": key.public.algorithm,
        "trust": LOCAL_DEVELOPMENT_KEY,
        "file": str(key.path),
        "public_pem": key.public.pem,
    }
    if as_json:
        emit_json(shown)
    else:
        # openssl reads the PEM block and skips what stands before it.
        for name in ("keyid", "algorithm", "trust", "file"):
            print(f"{name:10} {shown[name]}")
        print(f"\n{key.public.pem}", end="")
    return 0
