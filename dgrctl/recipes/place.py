"""Placing a model on machines of given memory, as the command line asks for it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from dgrctl.artifacts.provision import Storage, verified_model
from dgrctl.artifacts.target import load_target, target_ids
from dgrctl.errors import InputError
from dgrctl.layout import Layout
from dgrctl.recipes.memory import MemoryModel
from dgrctl.recipes.placement import PlacedStage, place
from dgrctl.recipes.recipe import Execution, check_execution

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_MAX_MEMORY = 2**53


def memory_sizes(text: str) -> list[int]:
    """``128GiB,96GiB`` as bytes. Units: KB to TB, KiB to TiB, none for bytes; decimals are allowed.

    Raises:
        InputError: it is no such list.
    """
    sizes = []
    for index, word in enumerate(text.split(",")):
        found = re.fullmatch(r"\s*([0-9]{1,15})(?:\.([0-9]{1,6}))?\s*([A-Za-z]*)\s*", word)
        unit = _UNITS.get(found.group(3).upper()) if found else None
        if found is None or unit is None:
            raise InputError(
                f"{word.strip()!r} is no size of memory",
                where=f"--memory, machine {index}",
                remedy="write sizes such as 128GiB,96GiB",
            )
        fraction = found.group(2) or ""
        size = int(found.group(1) + fraction) * unit // 10 ** len(fraction)
        if not 0 < size <= _MAX_MEMORY:
            raise InputError(
                f"no machine has {word.strip()} of memory",
                where=f"--memory, machine {index}",
                remedy="write sizes such as 128GiB",
            )
        sizes.append(size)
    return sizes


def place_model(
    layout: Layout, model_id: str, memory: str, settings: Mapping[str, object], storage: Storage = None
) -> tuple[MemoryModel, list[PlacedStage]]:
    """Places a model that is here, or a target, on machines with ``memory``.

    Args:
        settings: The fields of a recipe's ``[execution]``.

    Raises:
        InputError: an unknown model, settings or sizes that cannot be used, or too little memory.
        FetchError, IntegrityError, StorageError: see :func:`dgrctl.artifacts.provision.verified_model`.
    """
    sizes = memory_sizes(memory)
    try:
        execution = msgspec.convert(settings, Execution)
    except msgspec.ValidationError as error:
        raise InputError(f"these settings cannot be used: {error}", where=model_id, remedy="correct that option") from error
    check_execution(execution, model_id)
    if model_id in target_ids(layout):
        model = MemoryModel.of_target(load_target(layout, model_id))
    else:
        model = MemoryModel.of(verified_model(layout, model_id, storage))
    if execution.context > model.inventory.context_length:
        raise InputError(
            f"{execution.context} positions, and {model_id} was made for {model.inventory.context_length}",
            where="--context",
            remedy=f"name at most {model.inventory.context_length}",
        )
    return model, place(model, execution, sizes)
