"""gRPC statuses as the failures that dgrctl reports."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from dgr.v1 import common_pb2
from google.protobuf.message import DecodeError

from dgrctl.errors import AdmissionError, DgrError, InputError, LockedError, StageError

# How long a worker may take to answer a short question.
ANSWER_SECONDS = 3.0

STAGE_ERROR_KEY = "dgr-stage-error-bin"
REMEDY_KEY = "dgr-remedy"

_Code = grpc.StatusCode
_KINDS: dict[grpc.StatusCode, type[DgrError]] = {
    _Code.INVALID_ARGUMENT: InputError,
    _Code.OUT_OF_RANGE: InputError,
    _Code.FAILED_PRECONDITION: InputError,
    _Code.PERMISSION_DENIED: InputError,
    _Code.UNIMPLEMENTED: InputError,
    _Code.RESOURCE_EXHAUSTED: AdmissionError,
}
# What a worker says whose turn at the compute gate did not come in time (worker/engine/compute_gate.cpp).
_GATE_HELD = "held the compute gate"
_UNREACHABLE = {_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED}
_REMEDIES: dict[grpc.StatusCode, str] = {
    _Code.INVALID_ARGUMENT: "correct the request",
    _Code.OUT_OF_RANGE: "correct the request",
    _Code.FAILED_PRECONDITION: "start workers of one recipe, build and model, and name them in route order, head first",
    _Code.PERMISSION_DENIED: "start that worker with --allow-probes",
    _Code.UNIMPLEMENTED: "check that a dgr-worker of this version listens there",
    _Code.RESOURCE_EXHAUSTED: (
        "shorten the prompt or lower --max-tokens if the bound is per session; otherwise try again when another session has ended"
    ),
    _Code.DATA_LOSS: "run dgrctl model verify on that stage's machine, mend the model, and start the worker again",
    _Code.UNAVAILABLE: "check that worker and the network between, then run the command again",
    _Code.DEADLINE_EXCEEDED: "look at that worker: kill -CONT PID lets a stopped process go on; then run the command again",
}


@dataclass(frozen=True)
class Failure:
    """A failed call, taken apart.

    Attributes:
        code: gRPC's.
        message: What the answering side said.
        stage: The stage that failed, as the route reports it; None where the call itself failed.
        remedy: What to do, as the answering side says it; None where it says nothing.
    """

    code: grpc.StatusCode
    message: str
    stage: common_pb2.StageError | None
    remedy: str | None = None

    @classmethod
    def of(cls, error: grpc.RpcError) -> Failure:
        """Takes apart what a stub raised."""
        if not isinstance(error, grpc.Call):
            return cls(_Code.UNKNOWN, str(error), None)
        return cls(error.code() or _Code.UNKNOWN, error.details() or "", _stage_error(error), _remedy(error))

    @property
    def unreachable(self) -> bool:
        return self.code in _UNREACHABLE


def stage_title(index: int, begin: int, end: int) -> str:
    """How messages name a stage."""
    return f"stage {index} (layers {begin}:{end})"


def to_error(failure: Failure, *, title: str, address: str) -> DgrError:
    """The error to raise for a failed call.

    Args:
        title: Whom the call went to: "stage 0 (layers 0:15)".
        address: Where that is.
    """
    if failure.stage is not None:
        stage = failure.stage
        title = stage_title(stage.stage_index, stage.range.begin, stage.range.end)
        address = stage.address or address
    kind = _KINDS.get(failure.code, StageError)
    message = (failure.stage.message if failure.stage is not None else "") or failure.message or "no message"
    if message == "Deadline Exceeded":  # gRPC's own words for a call of ours that took too long
        message = f"it did not answer within {ANSWER_SECONDS:.0f} s; its process is stopped or overloaded"
    if failure.code is _Code.ABORTED and _GATE_HELD in message:
        return LockedError(
            f"{title} got no turn: {message}",
            where=address,
            remedy="the terminal of that worker names the process; end it, or wait longer: DGR_LOCK_SECONDS=SECONDS there",
        )
    if failure.unreachable:
        what = f"{title} cannot be reached: {message}"
    elif kind is StageError:
        what = f"{title} failed: {message}"
    else:
        what = f"{title} refuses: {message}"
    remedy = failure.remedy or _REMEDIES.get(failure.code, "read that worker's log, then run the command again")
    return kind(what, where=address, remedy=remedy)


def _remedy(call: grpc.Call) -> str | None:
    for key, value in call.trailing_metadata() or ():
        if key == REMEDY_KEY:
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None


def _stage_error(call: grpc.Call) -> common_pb2.StageError | None:
    for key, value in call.trailing_metadata() or ():
        if key == STAGE_ERROR_KEY and isinstance(value, bytes):
            try:
                return common_pb2.StageError.FromString(value)
            except DecodeError:
                return None
    return None
