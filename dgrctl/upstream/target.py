"""Another upstream commit to rehearse on, in a throw-away clone that holds the pin's objects as well.

It comes from the manifest's git server (with the history since the pin, where there is any), or from a path: a bundle, a clone, a
bare repository, or a source package like the manifest's, of another version. Squashed and shallow ones will do: patches are
merged from the pin's own blobs, so no common history is needed.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from dgrctl.console import progress
from dgrctl.errors import FetchError, InputError, UsageError
from dgrctl.files import sha256_file, storage_errors
from dgrctl.layout import Layout
from dgrctl.upstream.git import Repository, run_git
from dgrctl.upstream.manifest import GitTransport, ObjectId, SdistTransport, UpstreamManifest, transport_name
from dgrctl.upstream.sdist import download_sdist, extract_git_directory
from dgrctl.upstream.transports import clone_unchecked, cut_missing_history, fetch_unreached, pin_attributes, reach, serve_options

TARGET = "refs/heads/target"

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_VERSION = re.compile(r"set\(LLAMA_VERSION_(MAJOR|MINOR|PATCH) +(\d+)\)")


class Target(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A commit of upstream.

    Attributes:
        version: Upstream's own version there; the commit's first digits if it names none.
        source: Where it came from, as one would name it to ``dgrctl fetch``.
        package: The source package that brought it, as a transport; None if something else did.
    """

    commit: ObjectId
    tree: ObjectId
    version: str
    source: str
    package: SdistTransport | None = None


class Brought(NamedTuple):
    """A clone with a target and everything of the pin; ``server`` is what git can ask about further names."""

    repository: Repository
    target: Target
    server: str


def bring_target(
    layout: Layout, manifest: UpstreamManifest, clone: Path, *, to: str, transport: str | None = None, source: Path | None = None
) -> Brought:
    """Makes ``clone`` (which must not exist) with the commit that ``to`` names and everything of the pin.

    For the holder of the lock "upstream".

    Args:
        to: Commit, tag or branch; HEAD is the source's own.
        transport: The manifest's transport to use; None for its git server.
        source: A path to use instead.

    Raises:
        FetchError: it cannot be brought, or holds no such commit.
        UsageError: no such transport, or both ``transport`` and ``source``.
        StorageError: the disk is full.
    """
    _refuse_option(to)
    package = None
    if source is not None:
        if transport is not None:
            raise UsageError("--from already says where from", where="--transport", remedy="give one of --transport and --from")
        package = _package_of(manifest, source)
        repository = _from_path(source, package, to, clone)
        named, server, asked = str(source.resolve()), _served(source, clone), to
    else:
        chosen = _transport(manifest, transport)
        named = transport_name(chosen)
        if isinstance(chosen, GitTransport):
            repository = _from_server(layout, manifest, chosen, to, clone)
            server, asked = chosen.url, "FETCH_HEAD"
        else:
            package, path = chosen, download_sdist(layout, chosen)
            repository = _from_path(path, chosen, to, clone)
            server, asked = _served(path, clone), to
    commit = resolve_name(repository, server, asked)
    if commit is None:
        raise FetchError(f"it holds no commit {to}", where=named, remedy="name a commit, tag or branch of it")
    cut_missing_history(repository, commit)
    _join_pin(layout, manifest, repository)
    repository.run("update-ref", TARGET, commit)
    tree = repository.text("rev-parse", f"{commit}^{{tree}}")
    target = Target(commit=commit, tree=tree, version=_version(repository, commit), source=named, package=package)
    return Brought(repository, target, server)


def resolve_name(repository: Repository, server: str, name: str) -> str | None:
    """The commit that ``name`` means: to the clone, or, where that has no such tag or branch, to what it was cloned from.

    None where there is none, or the clone does not hold it.

    Raises:
        InputError: it looks like an option.
    """
    _refuse_option(name)
    found = repository.resolve(f"{name}^{{commit}}")
    if found is None and not _OBJECT_ID.fullmatch(name):
        # The peeled tag first: the tag itself is an object that the clone may lack.
        wanted = (f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}", f"refs/remotes/origin/{name}")
        listing = run_git("ls-remote", *serve_options(server), server, *wanted, raises=FetchError).decode()
        ids = {reference: commit for commit, reference in (line.split("\t") for line in listing.splitlines())}
        found = next((ids[each] for each in wanted if each in ids), None)
        found = found and repository.resolve(f"{found}^{{commit}}")
    return found


def has_history(repository: Repository, older: str, newer: str) -> bool:
    """Whether the commits between the two are there."""
    with contextlib.suppress(repository.raises):
        repository.run("merge-base", "--is-ancestor", older, newer)
        return True
    return False


def _refuse_option(name: str) -> None:
    if name.startswith("-"):
        raise InputError("this names no commit", where=name, remedy="name a commit, tag or branch")


def _transport(manifest: UpstreamManifest, name: str | None) -> GitTransport | SdistTransport:
    known = {transport_name(each): each for each in manifest.transports}
    if (name or "git") not in known:
        raise UsageError(
            f"the manifest has no transport '{name or 'git'}'",
            where="--transport",
            remedy="--from PATH takes a bundle or a clone",
        )
    return known[name or "git"]


def _package_of(manifest: UpstreamManifest, path: Path) -> SdistTransport | None:
    """``path`` as the manifest's source package in another version; None if it is none."""
    for transport in manifest.transports:
        if isinstance(transport, SdistTransport) and path.is_file():
            prefix = transport.filename.removesuffix(f"{transport.version}.tar.gz")
            if path.name.startswith(prefix) and path.name.endswith(".tar.gz"):
                return SdistTransport(
                    package=transport.package,
                    version=path.name.removeprefix(prefix).removesuffix(".tar.gz"),
                    sha256=sha256_file(path),
                    bytes=path.stat().st_size,
                    git_dir=transport.git_dir,
                )
    return None


def _from_path(source: Path, package: SdistTransport | None, to: str, clone: Path) -> Repository:
    if not source.exists():
        raise FetchError("there is no such bundle, clone or package", where=str(source), remedy="check the path")
    with progress(f"Cloning {source.name}"):
        if package is not None:
            extract_git_directory(source, package.git_dir, _git_directory(clone))
            served = f"file://{_git_directory(clone)}"
        else:
            served = f"file://{source.resolve()}" if source.is_dir() else str(source.resolve())
        clone_unchecked(served, clone, raises=FetchError)
    repository = Repository(clone, raises=FetchError)
    pin_attributes(repository)
    if _OBJECT_ID.fullmatch(to):
        fetch_unreached(repository, served, to)
    return repository


def _git_directory(clone: Path) -> Path:
    """Where a package's git directory is unpacked to."""
    return clone.with_name(clone.name + ".git-directory")


def _served(source: Path, clone: Path) -> str:
    """What git can be asked about the branches of ``source``."""
    if _git_directory(clone).is_dir():
        return f"file://{_git_directory(clone)}"
    return f"file://{source.resolve()}" if source.is_dir() else str(source.resolve())


def _from_server(layout: Layout, manifest: UpstreamManifest, transport: GitTransport, to: str, clone: Path) -> Repository:
    """The commit with all that came after the pin; alone, if it is older or the server has no more."""
    repository = Repository(clone, raises=FetchError)
    with progress(f"Fetching {to} from {transport.url}"):
        reach(transport)
        run_git("init", "--quiet", "--template=", str(clone), raises=FetchError, cwd=clone.parent)
        pin_attributes(repository)
        pinned = int(Repository(layout.pristine, raises=FetchError).text("log", "-1", "--format=%ct", manifest.commit))
        try:
            repository.run("fetch", "--quiet", "--no-tags", f"--shallow-since={pinned - 1}", transport.url, to)
        except FetchError:
            _fetch_alone(repository, transport, to)
    return repository


def _fetch_alone(repository: Repository, transport: GitTransport, to: str) -> None:
    try:
        repository.run("fetch", "--quiet", "--no-tags", "--depth=1", transport.url, to)
    except FetchError as error:
        raise FetchError(
            f"the server does not give out {to}",
            where=transport.url,
            detail=error.detail,
            remedy="name a tag, a branch or a whole commit id; --from PATH takes a bundle or a clone",
        ) from error


def _join_pin(layout: Layout, manifest: UpstreamManifest, repository: Repository) -> None:
    """Lets the clone see the pin's objects where they are, and the pin as the oldest commit unless its parents are there."""
    information = repository.folder / ".git" / "objects" / "info"
    own = repository.resolve(f"{manifest.commit}^{{commit}}") is not None
    with storage_errors(information):
        information.mkdir(exist_ok=True)
        (information / "alternates").write_text(f"{layout.pristine / '.git' / 'objects'}\n", encoding="utf-8")
        if not own:
            shallow = repository.folder / ".git" / "shallow"
            roots = shallow.read_text(encoding="ascii") if shallow.exists() else ""
            shallow.write_text(f"{roots}{manifest.commit}\n", encoding="ascii")


def _version(repository: Repository, commit: str) -> str:
    if repository.resolve(f"{commit}:CMakeLists.txt") is not None:
        numbers = dict(_VERSION.findall(repository.text("show", f"{commit}:CMakeLists.txt")))
        if len(numbers) == 3:
            return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))
    return commit[:12]
