"""The shared compatibility document: what must be equal on all stages of a route, and its fingerprint.

Each worker states it in DescribeResponse.compatibility and checks it when a session is opened. It binds the model's bytes, the
boundary, the runtime and its patches, the lane and everything in the execution that changes numbers. Keys and values are
strings, so the canonical form has no numbers to disagree about.
"""

from __future__ import annotations

from collections.abc import Mapping

from dgrctl.artifacts.local import LocalModel
from dgrctl.canonical import canonical_sha256
from dgrctl.errors import InputError
from dgrctl.recipes.recipe import Recipe

# In the order in which differences are reported: the causes before their consequences.
KEYS = (
    "model.sha256",
    "model.architecture",
    "boundary.adapter",
    "boundary.schema",
    "boundary.wire",
    "runtime.pin",
    "runtime.stack",
    "runtime.lane",
    "runtime.isa",
    "execution.context",
    "execution.ubatch",
    "execution.flash_attention",
    "execution.kv_type_k",
    "execution.kv_type_v",
)


def fingerprint(document: Mapping[str, str]) -> str:
    """SHA-256 (hex) over the RFC 8785 form of a compatibility document.

    Raises:
        InputError: a key is missing, unknown or empty; a document that binds less than all of it has no fingerprint.
    """
    for key in (*KEYS, *sorted(document.keys() - set(KEYS))):
        problem = "is unknown" if key not in KEYS else "" if document.get(key) else "is missing"
        if problem:
            raise InputError(
                f"the compatibility document's field {key} {problem}",
                where=f"compatibility.{key}",
                remedy="use a worker and a dgrctl of one version",
            )
    return canonical_sha256(dict(document))


def first_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """The first field that differs or that one side lacks, in the order of KEYS and then by name; None if all are equal."""
    for key in (*KEYS, *sorted((one.keys() | other.keys()) - set(KEYS))):
        if one.get(key) != other.get(key):
            return key
    return None


def expected(recipe: Recipe, model: LocalModel) -> dict[str, str]:
    """What a recipe and its model alone fix of the document: every worker of such a route must state exactly this."""
    execution = recipe.execution
    return {
        "model.sha256": model.set_digest,
        "model.architecture": model.architecture,
        "boundary.wire": recipe.boundary.wire,
        "runtime.lane": recipe.lane,
        "execution.context": str(execution.context),
        "execution.ubatch": str(execution.ubatch),
        "execution.flash_attention": "on" if execution.flash_attention else "off",
        "execution.kv_type_k": execution.kv_type_k,
        "execution.kv_type_v": execution.kv_type_v,
    }
