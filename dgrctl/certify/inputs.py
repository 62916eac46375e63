"""What a certification rests on stays what it was: held by locks while it runs, and hashed again before anything is signed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dgrctl.artifacts.provision import held_model
from dgrctl.certify.subject import Subject, find_subject
from dgrctl.errors import CertificationVoid, DgrError
from dgrctl.lanes.build import held_build
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import find_recipe, load_recipe


@contextlib.contextmanager
def held_inputs(layout: Layout, recipe: str, storage: str | None) -> Iterator[None]:
    """Lets nobody build the recipe's lane, nor pull or repair its model, during the block. Other readers may go on."""
    wanted = load_recipe(find_recipe(layout, recipe))
    with held_build(layout, wanted.lane), held_model(layout, wanted.model, storage):
        yield


def require_unchanged(layout: Layout, subject: Subject, *, recipe: str, storage: str | None) -> None:
    """Reads and hashes everything again.

    Raises:
        CertificationVoid: it is not what it was when the run began.
    """
    try:
        again = find_subject(layout, lane=subject.lock.lane, recipe=recipe, lock=subject.lock.name, storage=storage)
    except DgrError as error:
        raise changed_inputs(error.what, error.where) from error
    for what, now, before in (
        ("the lock", again.lock, subject.lock),
        ("the prompt set", again.prompts, subject.prompts),
        ("the recipe", again.recipe_sha256, subject.recipe_sha256),
        ("the model", again.prepared.model.set_digest, subject.prepared.model.set_digest),
        ("the build record", again.build_record_sha256, subject.build_record_sha256),
        ("the build", again.prepared.build, subject.prepared.build),
    ):
        if now != before:
            raise changed_inputs(f"{what} is another than when the run began")


def changed_inputs(what: str, where: str | None = None) -> CertificationVoid:
    """A run whose programs, model or files changed under it."""
    return CertificationVoid(
        f"changed inputs: {what}",
        where=where,
        remedy="certify again, and change neither programs, model, recipe, lock nor prompts meanwhile",
    )
