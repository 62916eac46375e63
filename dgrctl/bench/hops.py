"""What one hop costs: from the outside, by one stage more or less, and from the inside, by what taps see of a frame's way."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dgr.v1 import common_pb2, worker_pb2

from dgrctl.evidence.certification import SpeedPair
from dgrctl.evidence.ratios import interval, median
from dgrctl.runtime.route import Route, new_session

CONFIDENCE = "0.95"
RESAMPLES = 2000


@dataclass(frozen=True)
class Microseconds:
    """A median and its bootstrap interval."""

    low: int
    median: int
    high: int

    @classmethod
    def of(cls, values: Sequence[int], seed: str) -> Microseconds:
        """Of at least one value."""
        low, high = interval(values, confidence=CONFIDENCE, resamples=RESAMPLES, seed=seed)
        return cls(low, median(values), high)

    def __str__(self) -> str:
        return f"{self.median} ({self.low} … {self.high})"


def step_differences(pairs: Iterable[SpeedPair], decode_steps: int) -> list[int]:
    """By how much one decode step of the longer route takes longer, in microseconds, pair by pair."""
    return [(pair.split_decode_us - pair.whole_decode_us) // decode_steps for pair in pairs]


def between_engines(route: Route, prompt: common_pb2.Prompt, decode_steps: int) -> list[int]:
    """Microseconds from a stage handing out a decode step's frame until the next stage hands its rows to its engine.

    A tap shows a frame when it is sent and a decode call when its computation starts. Both travel to this process in the same
    way, so what that takes drops out of the difference but for its spread. One value for each step and cut.

    Args:
        route: Of workers that allow probes.
    """
    session = new_session()
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(len(route.clients)))
        taps = [stack.enter_context(client.tap(session)) for client in route.clients]
        seen = [threads.submit(_arrivals, tap) for tap in taps]
        for _ in route.generate(prompt, max_tokens=decode_steps + 1, session=session, ignore_end_of_generation=True):
            pass
        arrivals = [future.result() for future in seen]
    waits = []
    for sender, receiver in itertools.pairwise(arrivals):
        sent, started = sender["frame"][-decode_steps:], receiver["call"][-decode_steps:]
        waits += [(start - send) // 1000 for send, start in zip(sent, started, strict=True)]
    return waits


def _arrivals(tap: Iterable[worker_pb2.TapResponse]) -> dict[str, list[int]]:
    """Nanoseconds at which each kind of message came. Frames of one decode step are never fragmented: they hold one row."""
    times: dict[str, list[int]] = {"call": [], "frame": []}
    for message in tap:
        kind = message.WhichOneof("message")
        if kind is not None:
            times[kind].append(time.monotonic_ns())
    return times
