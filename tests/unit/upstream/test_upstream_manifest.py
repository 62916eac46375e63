"""The pin's manifest: the real one is read, a wrong one is refused with its field."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream_checkout import Checkout

from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.upstream.manifest import SdistTransport, load_manifest, transport_name

_GIT = '[[transports]]\nkind = "git"\nurl = "https://example.org/x"\n'
_SDIST = (
    '[[transports]]\nkind = "sdist"\npackage = "Some-pack.age"\nversion = "1.0"\n'
    f'sha256 = "{"0" * 64}"\nbytes = 1\ngit_dir = ".git/modules/x"\n'
)


def test_real_manifest_is_read() -> None:
    manifest = load_manifest(Layout(Path(__file__).resolve().parents[3]))
    assert [transport_name(transport) for transport in manifest.transports] == ["git", "sdist"]


def test_sdist_file_name_follows_the_naming_rule(checkout: Checkout) -> None:
    checkout.write_manifest(_SDIST)
    (transport,) = load_manifest(checkout.layout).transports
    assert isinstance(transport, SdistTransport)
    assert transport.filename == "some_pack_age-1.0.tar.gz"


@pytest.mark.parametrize(
    ("transports", "fields", "field"),
    [
        (_GIT, {"commit": "0" * 39}, "commit"),
        (_GIT, {"commit": "A" * 40}, "commit"),
        (_GIT, {"tree": "0" * 40 + "\\n"}, "tree"),
        (_GIT, {"name": "../x"}, "name"),
        (_GIT, {"branch": "master"}, "branch"),
        (_GIT + _GIT, {}, "transports"),
        ("transports = []", {}, "transports"),
        (_GIT.replace("https", "ext"), {}, "transports"),
        (_GIT.replace('"git"', '"svn"'), {}, "transports"),
        (_GIT.replace("url", "uri"), {}, "transports"),
        (_SDIST.replace(".git/modules", "../modules"), {}, "transports"),
        (_SDIST.replace(".git/modules", "/git/modules"), {}, "transports"),
        (_SDIST.replace("Some-pack.age", "--index-url"), {}, "transports"),
        (_SDIST.replace('"1.0"', '"1.0 --pre"'), {}, "transports"),
        (_SDIST.replace("bytes = 1", 'bytes = "1"'), {}, "transports"),
    ],
)
def test_wrong_field_is_refused_and_named(checkout: Checkout, transports: str, fields: dict[str, str], field: str) -> None:
    checkout.write_manifest(transports, **fields)
    with pytest.raises(InputError) as caught:
        load_manifest(checkout.layout)
    assert str(checkout.layout.upstream_manifest) in str(caught.value.where)
    assert field in f"{caught.value.where} {caught.value.what}"
    assert caught.value.remedy


def test_field_given_twice_is_refused(checkout: Checkout) -> None:
    manifest = checkout.layout.upstream_manifest
    manifest.write_text("schema = 1\n" + manifest.read_text())
    with pytest.raises(InputError, match="twice"):
        load_manifest(checkout.layout)
