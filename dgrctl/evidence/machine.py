"""What this machine says of its lanes: the matrix's view of :mod:`dgrctl.lanes`."""

from __future__ import annotations

from dgrctl.evidence.certification import device_identity
from dgrctl.evidence.fields import one_line
from dgrctl.evidence.matrix import LaneState
from dgrctl.lanes.device import LANES, detect, unavailable_reason


def lane_states() -> list[LaneState]:
    """Every lane in order, with this machine's device or the reason why there is none."""
    return [_state(lane) for lane in LANES]


def _state(lane: str) -> LaneState:
    reason = unavailable_reason(lane)
    if reason is not None:
        return LaneState(lane=lane, device=None, isa=None, unavailable=one_line(reason))
    identity = detect(lane)
    return LaneState(
        lane=lane, device=one_line(device_identity(identity.name, identity.details)), isa=identity.isa, unavailable=None
    )
