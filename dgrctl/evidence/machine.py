"""What this machine says of its lanes: the matrix's view of :mod:`dgrctl.lanes`."""

from __future__ import annotations

from dgrctl.evidence.matrix import LaneState


def lane_states() -> list[LaneState]:
    """Every lane in order, with this machine's device or the reason why there is none."""
    from dgrctl.lanes.device import LANES

    return [_state(lane) for lane in LANES]


def _state(lane: str) -> LaneState:
    from dgrctl.lanes.device import detect, unavailable_reason

    reason = unavailable_reason(lane)
    if reason is not None:
        return LaneState(lane=lane, device=None, isa=None, unavailable=reason)
    identity = detect(lane)
    return LaneState(lane=lane, device=identity.name, isa=identity.isa, unavailable=None)
