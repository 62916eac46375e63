"""What a run certifies, found and verified in full before anything starts: lock, prompt set, recipe, model, build, device."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from dgrctl.artifacts.local import LocalModel
from dgrctl.certify.prompts import PromptSet, load_prompt_set
from dgrctl.errors import InputError, IntegrityError, ToolchainError
from dgrctl.evidence.lock import Lock, load_lock, load_locks
from dgrctl.lanes.device import DeviceIdentity, detect, unavailable_reason
from dgrctl.lanes.isa import lacking, level
from dgrctl.lanes.record import digested_record, record_path
from dgrctl.layout import Layout
from dgrctl.recipes.recipe import Recipe, digested_recipe, find_recipe
from dgrctl.runtime.prepare import Prepared, prepare_recipe


@dataclass(frozen=True)
class Subject:
    """One combination to certify and the lock that judges it."""

    lock: Lock
    prompts: PromptSet
    recipe_sha256: str  # of the file's bytes
    build_record_sha256: str  # of the file's bytes
    prepared: Prepared
    device: DeviceIdentity


def find_subject(layout: Layout, *, lane: str, recipe: str, lock: str | None = None, storage: str | None = None) -> Subject:
    """Reads and verifies everything that a certification of ``recipe`` on ``lane`` rests on.

    Args:
        recipe: Its name or file.
        lock: Its name or file; None for the newest version of the one lock that is for this lane and model.
        storage: Where models are kept, if not where they usually are.

    Raises:
        InputError: recipe, lock or prompt set is malformed, or they do not belong together.
        IntegrityError: the prompt set, the model or a program is not what was recorded.
        ToolchainError: this machine cannot certify the lane; names why.
        DgrError: the model was not pulled or the lane not built; the remedy is the command that does.
    """
    path = find_recipe(layout, recipe)
    wanted, recipe_sha256 = digested_recipe(path)
    if wanted.lane != lane:
        raise InputError(
            f"this recipe is for the lane {wanted.lane}, not for {lane}",
            where=f"{path}: lane",
            remedy=f"certify --lane {wanted.lane}",
        )
    judge = _named_lock(layout, lock, wanted) if lock is not None else _only_lock(layout, wanted)
    prompts = _locked_prompts(layout, judge)
    reason = unavailable_reason(lane)
    if reason is not None:
        raise ToolchainError(
            f"the lane {lane} cannot be certified on this machine: {reason}",
            where="--lane",
            remedy="run the same command on a machine of that lane",
        )
    prepared, device = prepare_recipe(layout, wanted, storage), detect(lane)
    require_class(judge, prepared.model)
    _require_isa(prepared.build.isa, device)
    record = digested_record(layout, lane)
    if record is None or record[0] != prepared.build:
        raise IntegrityError(
            "the build record changed while it was read", where=str(record_path(layout, lane)), remedy="certify again"
        )
    return Subject(
        lock=judge,
        prompts=prompts,
        recipe_sha256=recipe_sha256,
        build_record_sha256=record[1],
        prepared=prepared,
        device=device,
    )


def require_class(lock: Lock, model: LocalModel) -> None:
    """Refuses to measure a fixture model under a lock whose evidence would count for a real one.

    Raises:
        InputError: the lock's class is another than ``fixture``, and the model is one.
    """
    if model.generator is not None and lock.evidence_class != "fixture":
        raise InputError(
            f"the model {model.manifest.id} is a fixture, made by {model.generator}: it can never give {lock.evidence_class}",
            where=f"{lock.name}.toml: class",
            remedy='write a lock of class "fixture" for it, or certify a real model',
        )


def _require_isa(built: str, device: DeviceIdentity) -> None:
    missing = lacking(level(built, platform.machine()), frozenset(device.flags))
    if missing:
        raise ToolchainError(
            f"the programs are built for {built}, and {device.name} lacks {', '.join(missing)}",
            where="build record: isa",
            remedy=f"dgrctl build --lane {device.lane} --isa {device.isa}",
        )


def _locks_folder(layout: Layout) -> Path:
    return layout.certs / "locks"


def _named_lock(layout: Layout, named: str, recipe: Recipe) -> Lock:
    folder = _locks_folder(layout)
    path = Path(named) if "/" in named or named.endswith(".toml") else folder / f"{named}.toml"
    if path.resolve().parent != folder.resolve():
        raise InputError(
            "evidence can only be judged by a lock of this checkout", where=str(path), remedy=f"put it into {folder}"
        )
    lock = load_lock(path)
    for field, locked, wanted in (("lane", lock.lane, recipe.lane), ("model", lock.model, recipe.model)):
        if locked != wanted:
            raise InputError(
                f"this lock is for the {field} {locked}; the recipe {recipe.name} has {wanted}",
                where=f"{path}: {field}",
                remedy="name a lock for the recipe's lane and model, or leave --lock out",
            )
    return lock


def _only_lock(layout: Layout, recipe: Recipe) -> Lock:
    fitting = [lock for lock in load_locks(_locks_folder(layout)) if (lock.lane, lock.model) == (recipe.lane, recipe.model)]
    names = sorted({lock.id for lock in fitting})
    if not names:
        raise InputError(
            f"no lock is for the lane {recipe.lane} and the model {recipe.model}",
            where=str(_locks_folder(layout)),
            remedy="write one before certifying: thresholds stand before results",
        )
    if len(names) > 1:
        raise InputError(
            f"{len(names)} locks are for the lane {recipe.lane} and the model {recipe.model}",
            where=str(_locks_folder(layout)),
            remedy=f"name one with --lock: {', '.join(sorted(lock.name for lock in fitting))}",
        )
    return max(fitting, key=lambda lock: lock.version)


def _locked_prompts(layout: Layout, lock: Lock) -> PromptSet:
    path = layout.certs / "prompts" / f"{lock.prompt_set.name}.toml"
    prompts = load_prompt_set(path, sha256=lock.prompt_set.sha256)
    if len(prompts.prompts) != lock.prompt_set.prompts:
        raise InputError(
            f"the lock {lock.name} counts {lock.prompt_set.prompts} prompts, the set has {len(prompts.prompts)}",
            where=str(path),
            remedy="write a lock that counts its prompts rightly, as a new version",
        )
    return prompts
