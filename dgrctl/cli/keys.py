"""``dgrctl keys``: the key that signs evidence on this machine."""

from __future__ import annotations

import argparse

from dgrctl.console import emit_json, note
from dgrctl.evidence.keys import KEY_VARIABLE, init_local_key, load_key, local_key_path, signing_key_path
from dgrctl.evidence.trust import LOCAL_DEVELOPMENT_KEY
from dgrctl.layout import Layout


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the group to the command line."""
    group = commands.add_parser("keys", help="make or show the key that signs evidence on this machine", allow_abbrev=False)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser("init", help="make the local development key, unless there is one", allow_abbrev=False)
    init.set_defaults(run=_init)
    show = actions.add_parser("show", help="the public half of the signing key", allow_abbrev=False)
    show.add_argument("--json", action="store_true", help="as JSON on stdout")
    show.set_defaults(run=_show)


def _init(layout: Layout, arguments: argparse.Namespace) -> int:
    path = local_key_path(layout)
    made = init_local_key(layout)
    note(f"made {path}, mode 0600; it vouches for this machine only" if made else f"nothing to do: {path} is there")
    if signing_key_path(layout) != path:
        note(f"{KEY_VARIABLE} names another key, which signs instead: {signing_key_path(layout)}")
    return 0


def _show(layout: Layout, arguments: argparse.Namespace) -> int:
    key = load_key(signing_key_path(layout))
    shown = {
        "keyid": key.keyid,
        "algorithm": key.public.algorithm,
        "trust": LOCAL_DEVELOPMENT_KEY,
        "file": str(key.path),
        "public_pem": key.public.pem,
    }
    if arguments.json:
        emit_json(shown)
    else:
        # openssl reads the PEM block and skips what stands before it.
        for name in ("keyid", "algorithm", "trust", "file"):
            print(f"{name:10} {shown[name]}")
        print(f"\n{key.public.pem}", end="")
    return 0
