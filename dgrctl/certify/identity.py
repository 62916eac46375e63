"""Whether the processes that answer are what was verified: the model, the build and the execution that the recipe names.

The worker's and the reference's own word (their compatibility documents) is held against what this side verified and started
them with. A reference of another model, ubatch or cache type would be compared with as readily as the right one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from dgr.v1 import reference_pb2, worker_pb2

from dgrctl.canonical import canonical_sha256
from dgrctl.errors import CertificationVoid
from dgrctl.evidence.certification import Process
from dgrctl.recipes.fingerprint import expected
from dgrctl.runtime.prepare import Prepared

# What the reference, which has no boundary and no patch stack, does not share with a stage.
_OF_STAGES_ONLY = ("boundary.", "runtime.stack")


def stage_identity(prepared: Prepared) -> dict[str, str]:
    """Fields that the compatibility document of every stage must hold."""
    build = prepared.build
    return {
        **expected(prepared.recipe, prepared.model),
        "runtime.pin": build.pin,
        "runtime.stack": build.stack_digest,
        "runtime.isa": build.isa,
    }


def reference_identity(prepared: Prepared) -> dict[str, str]:
    """Fields that the reference's must hold."""
    return {key: value for key, value in stage_identity(prepared).items() if not key.startswith(_OF_STAGES_ONLY)}


def check_processes(
    prepared: Prepared,
    phase: Literal["parity", "speed"],
    reference: reference_pb2.ReferenceDescribeResponse,
    stages: Sequence[worker_pb2.DescribeResponse],
) -> list[Process]:
    """Checks the reference and every stage, and returns the fingerprint of what each states.

    Raises:
        CertificationVoid: names the first field that differs, with both values.
    """
    for stage in stages:
        check_stage(prepared, stage)
    check_reference(prepared, reference, stages[0])
    said = [("reference", reference.compatibility), *((f"stage-{index}", one.compatibility) for index, one in enumerate(stages))]
    return [Process(phase=phase, name=name, compatibility_sha256=canonical_sha256(dict(document))) for name, document in said]


def check_stage(prepared: Prepared, stage: worker_pb2.DescribeResponse) -> None:
    """Refuses a stage that is something else than what was verified.

    Raises:
        CertificationVoid: names the first field that differs, with both values.
    """
    _check("the worker", stage_identity(prepared), stage.compatibility)


def check_reference(
    prepared: Prepared, reference: reference_pb2.ReferenceDescribeResponse, stage: worker_pb2.DescribeResponse
) -> None:
    """Refuses a reference that is not the same whole model, run in the same way, as the stages are parts of.

    Raises:
        CertificationVoid: names the first field that differs, with both values.
    """
    _check("the reference", reference_identity(prepared), reference.compatibility)
    stack = reference.compatibility.get("runtime.stack", "none")
    if stack != "none":
        raise CertificationVoid(
            f"the reference carries the patch stack {stack}; only the unpatched upstream can judge a patched one",
            where="runtime.stack",
            remedy="build again: dgrctl build",
        )
    shape = {
        name: str(getattr(stage, name))
        for name in ("layer_count", "architecture", "streams", "width", "vocabulary", "context_per_session", "ubatch")
    }
    _check("the reference", shape, {name: str(getattr(reference, name)) for name in shape})


def _check(who: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    for field, value in wanted.items():
        if found.get(field) != value:
            raise CertificationVoid(
                f"{who} says that its {field} is {found.get(field, 'not set')}; {value} was verified and asked for",
                where=field,
                remedy="build again (dgrctl build); programs that do not say what they are cannot be certified",
            )
