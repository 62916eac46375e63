"""Moving the pin edits the lines that name it, and leaves what people wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.upstream.manifest import GitTransport, SdistTransport, UpstreamManifest, load_manifest
from dgrctl.upstream.repin import repinned_manifest, repinned_text, require_repinned
from dgrctl.upstream.target import Target

GIT = '# The server.\n[[transports]]\nkind = "git"\nurl = "https://example.org/llama.cpp"\n'
SDIST = (
    "# A package.\n# Of two lines of comment.\n[[transports]]\nkind = 'sdist'\npackage = \"some-package\"\n"
    f'version = "1.0" # ours\nsha256 = "{"5" * 64}"\nbytes = 1_000\ngit_dir = ".git/x"\n'
)
HEAD = f"""# About the pin.
schema = 1
name = "llama.cpp"
version = "0.5.0" # upstream's own
commit = "{"1" * 40}"
tree   = '{"2" * 40}'

"""
PACKAGE = SdistTransport(package="some-package", version="2.0", sha256="6" * 64, bytes=77, git_dir=".git/x")


def target(package: SdistTransport | None = None) -> Target:
    return Target(commit="a" * 40, tree="b" * 40, version="0.6.0", source="git", package=package)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.upstream_manifest.parent.mkdir(parents=True)
    return layout


def written(layout: Layout, text: str, to: Target) -> tuple[str, UpstreamManifest]:
    layout.upstream_manifest.write_text(text)
    former = load_manifest(layout)
    wanted = repinned_manifest(former, to)
    layout.upstream_manifest.write_text(repinned_text(text, former, wanted))
    require_repinned(layout, wanted)
    return layout.upstream_manifest.read_text(), wanted


@pytest.mark.parametrize("transports", [f"{GIT}\n{SDIST}", f"{SDIST}\n{GIT}"])
def test_a_package_of_the_former_pin_goes_with_its_comment(layout: Layout, transports: str) -> None:
    text, manifest = written(layout, HEAD + transports, target())
    assert (manifest.commit, manifest.tree, manifest.version) == ("a" * 40, "b" * 40, "0.6.0")
    assert [type(each) for each in manifest.transports] == [GitTransport]
    assert "A package" not in text
    assert "two lines" not in text
    for kept in ("# About the pin.", "# upstream's own", "# The server."):
        assert kept in text


def test_a_new_package_takes_its_place(layout: Layout) -> None:
    text, manifest = written(layout, f"{HEAD}{GIT}\n{SDIST}", target(PACKAGE))
    assert manifest.transports[1] == PACKAGE
    for kept in ("# A package.", "# ours", "bytes = 77\n"):
        assert kept in text


def test_the_same_pin_is_the_same_file(layout: Layout) -> None:
    same = Target(commit="1" * 40, tree="2" * 40, version="whatever", source="x")
    assert written(layout, f"{HEAD}{GIT}\n{SDIST}", same)[0] == f"{HEAD}{GIT}\n{SDIST}"


def test_nothing_left_to_bring_it(layout: Layout) -> None:
    with pytest.raises(InputError, match="nothing could bring"):
        written(layout, HEAD + SDIST, target())
    assert written(layout, HEAD + SDIST, target(PACKAGE))[1].transports == (PACKAGE,)


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace('commit = "', '"commit" = "') + GIT,
        HEAD.replace('version = "', 'version = """').replace('0" #', '0""" #') + GIT,
        HEAD + GIT + SDIST.replace("version =", '"version" ='),
    ],
)
def test_a_manifest_that_cannot_be_edited_is_refused(layout: Layout, text: str) -> None:
    with pytest.raises(InputError, match="cannot move") as caught:
        written(layout, text, target(PACKAGE))
    assert caught.value.remedy
