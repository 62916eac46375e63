"""DeepSeek V4 in small under every kind of load: prompts around each border, long decoding, sessions at once, other caches.

Borders: the window (32), a block of the compressors (4 and 128), and the ubatch, which is set once to each of the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from token_parity import Rig, as_prompt, token_prompt

from dgrctl.certify.observe import observe
from dgrctl.certify.parity import CachedOracle, Observation, compare
from dgrctl.certify.parity_set import ReferenceOracle
from dgrctl.certify.plan import OutputMode, PromptPlan
from dgrctl.runtime.route import LocalRoute

if TYPE_CHECKING:
    from fixture_models import FixtureModels

    from dgrctl.artifacts.local import LocalModel

Say = Callable[[object], None]

BORDERS = (1, 31, 32, 33, 127, 128, 129, 300)
LONG = 4500
CUTS = (2, 5)  # inside the hash-routed layers, and after them


@dataclass(frozen=True)
class Pair:
    """A running route of three stages, and the whole model."""

    route: LocalRoute
    oracle: ReferenceOracle
    rig: Rig


@contextlib.contextmanager
def running(rig: Rig, model: LocalModel, *cuts: int) -> Iterator[Pair]:
    with rig.reference(model) as reference, rig.route(model, *cuts) as route:
        yield Pair(route, ReferenceOracle(reference), rig)


@pytest.fixture(scope="module")
def model(fixture_models: FixtureModels) -> LocalModel:
    return fixture_models.deepseek4(weights="f16")


@pytest.mark.parametrize("ubatch", [32, 128])
def test_prompts_around_every_border(fixture_rig: Rig, model: LocalModel, ubatch: int, tmp_path: Path, say: Say) -> None:
    prompts = [token_prompt(length) for length in BORDERS]
    with running(fixture_rig.executing(ubatch=ubatch, context=512), model, *CUTS) as pair:
        found = pair.rig.compare(pair.route, pair.oracle, prompts, tmp_path, decode_steps=5)
    say(f"ubatch {ubatch}: {found}")
    found.require_identical()


def test_a_prompt_of_4500_tokens(fixture_rig: Rig, model: LocalModel, tmp_path: Path, say: Say) -> None:
    """Past 4,096 positions, where a backend is known to have crashed, and with chunks under way on several stages at once."""
    with running(fixture_rig.executing(ubatch=128, context=4608, prefill_window=3), model, *CUTS) as pair:
        found = pair.rig.compare(pair.route, pair.oracle, [token_prompt(LONG)], tmp_path, modes=[OutputMode.ALL])
    say(f"{LONG} tokens: {found}")
    found.require_identical()


def test_two_hundred_decode_steps(fixture_rig: Rig, model: LocalModel, tmp_path: Path, say: Say) -> None:
    """Each step moves the window, every fourth closes a block of CSA, and one closes a block of HCA."""
    with running(fixture_rig.executing(ubatch=32, context=256), model, *CUTS) as pair:
        found = pair.rig.compare(pair.route, pair.oracle, [token_prompt(33)], tmp_path, decode_steps=200, modes=[OutputMode.LAST])
    say(f"200 steps: {found}")
    found.require_identical()


def test_three_sessions_interleaved(fixture_rig: Rig, model: LocalModel, tmp_path: Path, say: Say) -> None:
    """Three sessions in three slots of the same stages, each with a prompt of its own: none changes a bit of another."""
    rig = fixture_rig.executing(ubatch=32, context=256, sessions=3)
    plans = [rig.plan(token_prompt(length), OutputMode.ALL, decode_steps=60, stages=3) for length in (31, 70, 140)]
    together = Barrier(len(plans))
    with running(rig, model, *CUTS) as pair, ThreadPoolExecutor(len(plans)) as pool, contextlib.ExitStack() as stack:

        def run(plan: PromptPlan) -> Observation:
            together.wait()
            return observe(pair.route, plan, as_prompt(plan.tokens), tmp_path)

        observations = list(pool.map(run, plans))
        for observation in observations:
            stack.enter_context(contextlib.closing(observation))
        slots = [observation.calls[0][0].sequences[0].slot for observation in observations]
        assert sorted(slots) == [0, 1, 2]
        results = [compare(plan, CUTS, observation, pair.oracle) for plan, observation in zip(plans, observations, strict=True)]
    say(f"slots {slots}: {[result.logits.differing for result in results]} logits differ")
    assert all(result.logits.compared == (len(result.plan.tokens) + 60) * 256 for result in results)
    assert all(result.identical for result in results)


SETTINGS: dict[str, dict[str, object]] = {
    "q8_0 KV": {"kv_type_k": "q8_0", "kv_type_v": "q8_0"},
    "f32 KV": {"kv_type_k": "f32", "kv_type_v": "f32"},
    "no flash attention": {"flash_attention": False},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_other_caches_and_attention(fixture_rig: Rig, model: LocalModel, name: str, tmp_path: Path, say: Say) -> None:
    """Upstream wants one type for keys and values, and rotates what it quantises, also where a stage lacks a kind of cache."""
    rig = fixture_rig.executing(ubatch=32, context=256, **SETTINGS[name])
    with rig.reference(model) as reference:
        oracle = CachedOracle(ReferenceOracle(reference), range(1, model.layer_count))
        for cuts in (CUTS, tuple(range(1, model.layer_count))):
            with rig.route(model, *cuts) as route:
                found = rig.compare(route, oracle, [token_prompt(140)], tmp_path)
            say(f"{name}, {len(cuts) + 1} stages: {found}")
            found.require_identical()
