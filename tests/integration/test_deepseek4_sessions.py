"""A thousand sessions in a row on the same stages of DeepSeek V4: none leaves memory or a bit of state behind."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from dgr.v1 import common_pb2
from token_parity import Rig, as_prompt, token_prompt

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.runtime.route import LocalRoute

SESSIONS = 1000
WARM_UP = 100
EPOCHS = 50  # of one session, one after the other
MIB = 1024 * 1024
# Prompts that leave each kind of state behind: within the window, past it, past a block of HCA.
LENGTHS = (3, 9, 20, 40)
LONG = 135
PROBE = token_prompt(50, seed=7)


def logits_of(route: LocalRoute, tokens: tuple[int, ...], session: common_pb2.SessionKey | None = None) -> str:
    """A digest of every logit of the prompt and of three generated tokens."""
    digest = hashlib.sha256()
    answers = route.generate(as_prompt(tokens), max_tokens=3, session=session, logits=common_pb2.OUTPUT_ROWS_ALL)
    for answer in answers:
        digest.update(answer.logits.values)
        digest.update(answer.token.id.to_bytes(4, "little"))
    return digest.hexdigest()


def resident(route: LocalRoute) -> list[int]:
    return [client.describe().resident_bytes for client in route.clients]


def test_a_thousand_sessions_leave_nothing_behind(
    fixture_rig: Rig, fixture_models: FixtureModels, say: Callable[[object], None]
) -> None:
    """Memory: a stage remembers a session's epoch (a few hundred bytes, of 65,536 sessions at most), and its allocator needs some
    thousand sessions to settle; all of that is less than the shortest prompt's boundary for each session, let alone its state."""
    model = fixture_models.deepseek4(layers=5, weights="f16")
    rig = fixture_rig.executing(ubatch=32, context=160, sessions=2)
    with rig.route(model, 2, 3) as fresh:
        expected = logits_of(fresh, PROBE)
    with rig.route(model, 2, 3) as route:
        before: list[int] = []
        for index in range(SESSIONS):
            if index == WARM_UP:
                before = resident(route)
            length = LONG if index % 50 == 49 else LENGTHS[index % len(LENGTHS)]
            list(route.generate(as_prompt(token_prompt(length, seed=index)), max_tokens=2))
            if index % 100 == 99:
                assert logits_of(route, PROBE) == expected, f"after {index + 1} sessions"
        after = resident(route)
        assert all(client.describe().open_sessions == 0 for client in route.clients)
    grown = [now - then for now, then in zip(after, before, strict=True)]
    say(f"{SESSIONS} sessions: stages grew by {[f'{bytes_ / MIB:.2f} MiB' for bytes_ in grown]} from {WARM_UP} on")
    head = route.stages[0].description
    smallest = min(LENGTHS) * 4 * head.streams * head.width
    assert all(bytes_ < (SESSIONS - WARM_UP) * smallest for bytes_ in grown)


def test_a_larger_epoch_begins_on_fresh_state(fixture_rig: Rig, fixture_models: FixtureModels) -> None:
    """Also where the epoch before was left in the middle."""
    model = fixture_models.deepseek4(layers=5, weights="f16")
    rig = fixture_rig.executing(ubatch=32, context=160, sessions=2)
    with rig.route(model, 2) as route:
        expected = logits_of(route, PROBE)
        for epoch in range(1, 2 * EPOCHS, 2):
            key = common_pb2.SessionKey(route_session_id="one", route_epoch=epoch)
            left = route.generate(as_prompt(token_prompt(LONG, seed=epoch)), max_tokens=20, session=key)
            with contextlib.closing(left):
                next(answer for answer in left if answer.HasField("token"))
                after = common_pb2.SessionKey(route_session_id="one", route_epoch=epoch + 1)
                assert logits_of(route, PROBE, after) == expected, f"epoch {epoch + 1}"
