"""The ways to bring upstream. Each gives a clone with the pin checked out and *unproven*: :mod:`dgrctl.upstream.fetch` proves.

All of them work in a folder that the caller made and throws away, and raise FetchError with the reason when they fail.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dgrctl.console import progress
from dgrctl.errors import DgrError, FetchError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout
from dgrctl.upstream.git import Repository, run_git
from dgrctl.upstream.manifest import GitTransport, SdistTransport, Transport, UpstreamManifest
from dgrctl.upstream.sdist import download_sdist, extract_git_directory

# git itself would wait for minutes where a firewall swallows the connection, so a short question goes first.
_CONNECT_SECONDS = 10.0


def bring(layout: Layout, manifest: UpstreamManifest, transport: Transport | Path, clone: Path) -> None:
    """Makes ``clone`` (which must not exist) from ``transport``: one of the manifest's, or a path that the user names.

    Raises:
        FetchError: this transport cannot bring the pin; says why.
        StorageError: the disk is full.
    """
    if isinstance(transport, Path):
        _from_path(transport, manifest, clone)
    elif isinstance(transport, GitTransport):
        _from_server(transport, manifest, clone)
    else:
        _from_sdist(layout, transport, manifest, clone)


def _from_server(transport: GitTransport, manifest: UpstreamManifest, clone: Path) -> None:
    """Asks the server for the one commit, without history."""
    with progress(f"Fetching {manifest.name} {manifest.version} from {transport.url}"):
        reach(transport)
        run_git("init", "--quiet", "--template=", str(clone), raises=FetchError, cwd=clone.parent)
        repository = Repository(clone, raises=FetchError)
        repository.run("fetch", "--quiet", "--no-tags", "--depth=1", transport.url, manifest.commit)
        _check_out(repository, manifest)


def reach(transport: GitTransport) -> None:
    """Asks the server a short question.

    Raises:
        FetchError: it gives no answer in time.
    """
    run_git("ls-remote", "--exit-code", transport.url, "HEAD", raises=FetchError, timeout=_CONNECT_SECONDS)


def _from_sdist(layout: Layout, transport: SdistTransport, manifest: UpstreamManifest, clone: Path) -> None:
    package = download_sdist(layout, transport)
    git_directory = clone.with_name(clone.name + ".git-directory")
    with progress(f"Unpacking {manifest.name} {manifest.version} from {transport.filename}"):
        extract_git_directory(package, transport.git_dir, git_directory)
        _clone(f"file://{git_directory}", manifest, clone)


def _from_path(path: Path, manifest: UpstreamManifest, clone: Path) -> None:
    """From a bundle, a bare repository or a clone."""
    source = path.resolve()
    if not source.is_dir() and not source.is_file():
        raise FetchError("there is no such bundle or clone", where=str(path))
    with progress(f"Cloning {path}"):
        _clone(f"file://{source}" if source.is_dir() else str(source), manifest, clone)


def _clone(source: str, manifest: UpstreamManifest, clone: Path) -> None:
    clone_unchecked(source, clone, raises=FetchError)
    repository = Repository(clone, raises=FetchError)
    fetch_unreached(repository, source, manifest.commit)
    _check_out(repository, manifest)


def clone_unchecked(source: str, clone: Path, *options: str, raises: type[DgrError]) -> None:
    """Clones without checking out. Takes a shallow ``source`` as it is, where ``git fetch`` would refuse its roots."""
    arguments = ("--quiet", "--no-checkout", "--template=", *serve_options(source), *options, "--", source, str(clone))
    run_git("clone", *arguments, raises=raises, cwd=clone.parent)
    Repository(clone, raises=raises).run("remote", "remove", "origin")


def serve_options(source: str) -> tuple[str, ...]:
    """What git must be told to read ``source``: the serving side reads no configuration of ours, and would refuse a repository of
    another user."""
    command = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
    return ("--upload-pack", command) if source.startswith("file://") else ()


def fetch_unreached(repository: Repository, source: str, commit: str) -> None:
    """Fetches ``commit`` by its id, for a ``source`` in which no branch or tag reaches it. Does nothing where it is there.

    Raises:
        FetchError: the source does not give it.
    """
    if repository.resolve(f"{commit}^{{commit}}") is not None:
        return
    try:
        repository.run("fetch", "--quiet", "--no-tags", "--update-shallow", *serve_options(source), source, commit)
    except FetchError as error:
        raise FetchError(
            f"no branch or tag there reaches commit {commit}, and fetching it by its id failed",
            where=source,
            detail=error.detail,
            remedy="fetch that commit into the clone or mirror, or make the bundle from a branch that holds it",
        ) from error


def _check_out(repository: Repository, manifest: UpstreamManifest) -> None:
    if repository.resolve(f"{manifest.commit}^{{commit}}") is None:
        raise FetchError(f"it does not hold commit {manifest.commit}")
    pin_attributes(repository)
    cut_missing_history(repository, manifest.commit)
    repository.run("checkout", "--quiet", "--detach", manifest.commit)
    # What is kept is the pin alone; a clone with history can carry thousands of tags.
    deletions = repository.run("for-each-ref", "--format=delete %(refname)")
    repository.run("update-ref", "--stdin", stdin=deletions)


def cut_missing_history(repository: Repository, commit: str) -> None:
    """Marks ``commit`` as the oldest if older ones are missing: a bundle made from a shallow clone does not say so itself."""
    with contextlib.suppress(FetchError):
        repository.run("rev-list", "--quiet", commit)
        return
    with storage_errors(repository.folder):
        (repository.folder / ".git" / "shallow").write_text(f"{commit}\n", encoding="ascii")


def pin_attributes(repository: Repository) -> None:
    """Has every git, the user's own included, take files of this clone as they are: no line ends, filters or keywords."""
    information = repository.folder / ".git" / "info"
    with storage_errors(information):
        information.mkdir(exist_ok=True)
        (information / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
