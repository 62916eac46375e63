"""Where models are kept: a folder on mounted storage, never below /home.

Home folders are small, backed up, encrypted at login or not mounted at all when a service starts; hundreds of gigabytes of
weights do not belong there. What counts is where the bytes end up, so symbolic links are followed before anything is decided.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dgrctl.errors import StorageError
from dgrctl.files import storage_errors
from dgrctl.layout import Layout

_HOME = Path("/home")


def storage_root(layout: Layout, override: str | os.PathLike[str] | None = None, *, create: bool = False) -> Path:
    """The folder that holds the models, resolved: ``override`` (--storage), else DGR_STORAGE, else ``.dgr/models``.

    Args:
        create: Make the folder if it is missing, and demand that it can be written to.

    Raises:
        StorageError: a relative path, a path at or below /home (also through a symbolic link), something that is not a folder,
            or, with ``create``, a folder that cannot be made or written to.
    """
    path, named_by = _named_root(layout, override)
    if not path.is_absolute():
        raise StorageError(
            f"the model storage {str(path)!r} is a relative path", where=named_by, remedy="name it by an absolute path"
        )
    refuse_home(path, named_by)
    try:
        resolved = path.resolve()
        if resolved.exists() and not resolved.is_dir():
            raise StorageError("the model storage is not a folder", where=f"{named_by}: {path}", remedy="name a folder")
        if create:
            with storage_errors(path):
                resolved.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        # A name that is too long, a loop of links, a file where a folder should be.
        raise StorageError(
            f"the model storage cannot be used: {error}", where=f"{named_by}: {path}", remedy="name another folder"
        ) from error
    if create and not os.access(resolved, os.W_OK | os.X_OK):
        raise StorageError(
            "the model storage cannot be written to",
            where=f"{named_by}: {path}",
            remedy="make it writable for this user, or name another folder with --storage or DGR_STORAGE",
        )
    return resolved


def model_folder(root: Path, model_id: str) -> Path:
    """The folder of one model below a storage root that :func:`storage_root` returned."""
    folder = root / model_id
    refuse_home(folder, "model folder")
    return folder


def refuse_home(path: Path, named_by: str) -> None:
    """Raises StorageError if ``path`` is at or below /home, as it is written or once its symbolic links are followed."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError) as error:
        raise StorageError(
            f"this path cannot be followed: {error}", where=f"{named_by}: {path}", remedy="name another folder"
        ) from error
    if not any(
        _is_home(place) for candidate in (Path(os.path.normpath(path)), resolved) for place in (candidate, *candidate.parents)
    ):
        return
    followed = f" (it leads to {resolved})" if resolved != path else ""
    raise StorageError(
        f"models are not kept below {_HOME}{followed}",
        where=f"{named_by}: {path}",
        remedy="put them on mounted storage: export DGR_STORAGE=/absolute/path (or --storage), and run the command again",
    )


def require_space(root: Path, needed: int, purpose: str) -> None:
    """Raises StorageError unless the disk under ``root`` has ``needed`` more bytes for this user."""
    with storage_errors(root):
        free = shutil.disk_usage(root).free
    if free < needed:
        raise StorageError(
            f"{purpose} takes {needed:,} more bytes, and {free:,} are free",
            where=str(root),
            remedy=f"free {needed - free:,} bytes there, or name storage on another disk with --storage or DGR_STORAGE",
        )


def _named_root(layout: Layout, override: str | os.PathLike[str] | None) -> tuple[Path, str]:
    if override is not None:
        return Path(override), "--storage"
    named = os.environ.get("DGR_STORAGE")
    if named:
        return Path(named), "DGR_STORAGE"
    return layout.default_storage, "default storage of this checkout"


def _is_home(place: Path) -> bool:
    # By identity as well: /home can itself be a link, or be mounted a second time elsewhere.
    try:
        return place == _HOME or place.samefile(_HOME)
    except OSError:
        return False
