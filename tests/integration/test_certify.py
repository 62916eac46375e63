"""``dgrctl certify`` on real workers and the real model, under small locks of a checkout beside this one.

The checkout has its own locks, prompts, recipes, keys, ledger and evidence; what was built and pulled is this one's.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from certify_checkouts import PROMPTS, RECIPE, RECIPES, Checkout

from dgrctl.certify.identity import check_reference, check_stage
from dgrctl.certify.subject import find_subject
from dgrctl.errors import CertificationVoid, InputError
from dgrctl.files import sha256_file
from dgrctl.runtime.prepare import Prepared
from dgrctl.runtime.reference import LocalReference
from dgrctl.runtime.route import LocalRoute


def test_a_recipe_that_agrees_passes_with_evidence_that_verifies(checkout: Checkout) -> None:
    finished = checkout.certify()
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert (result["verdict"], result["reasons"], result["lock"]) == ("passed", [], "quick.v1")
    parity = result["parity"]
    assert parity["logits_differing"] == parity["boundary_values_differing"] == parity["tokens_differing"] == 0
    assert parity["runs"] == 4
    assert parity["tokens_compared"] == 4 * 5
    assert parity["logits_compared"] == (parity["positions"] // 2 + 2 * 5) * 49152
    assert parity["boundary_values_compared"] == parity["positions"] * 576
    assert "passed" in finished.stderr
    verified = checkout.run("evidence", "verify", result["evidence"])
    assert verified.returncode == 0, verified.stderr
    assert [record["kind"] for record in checkout.records()] == ["intent", "outcome"]
    assert [(row["recipe"], row["status"]) for row in checkout.rows()] == [(RECIPE, "advertisable")]


def test_a_bf16_boundary_fails_and_signed_evidence_says_by_how_much(checkout: Checkout) -> None:
    finished = checkout.certify(recipe=RECIPES[1])
    assert finished.returncode == 20, finished.stderr
    result = json.loads(finished.stdout)
    parity = result["parity"]
    assert result["verdict"] == "failed"
    assert parity["logits_differing"] > 0
    assert float(parity["max_abs_difference"]) > 0
    assert parity["boundary_values_differing"] > 0
    assert any(str(parity["logits_differing"]) in reason for reason in result["reasons"])
    verified = checkout.run("evidence", "verify", result["evidence"])
    assert verified.returncode == 0, verified.stderr
    shown = json.loads(Path(result["evidence"]).read_text(encoding="utf-8"))
    assert shown["signatures"]
    assert checkout.records()[-1]["verdict"] == "failed"
    assert [row["status"] for row in checkout.rows()] == ["dark"]


def test_a_recipe_below_the_locked_speed_fails(checkout: Checkout) -> None:
    checkout.lock(minimum="50")
    finished = checkout.certify()
    assert finished.returncode == 20, finished.stderr
    result = json.loads(finished.stdout)
    assert result["parity"]["logits_differing"] == 0
    assert len(result["reasons"]) == 1
    assert "prefill" in result["reasons"][0]
    assert "50" in result["reasons"][0]


def test_the_newest_version_of_the_lock_judges_unless_another_is_named(checkout: Checkout) -> None:
    older, newer = checkout.lock(1), checkout.lock(2, minimum="50")
    found = find_subject(checkout.layout, lane="cpu", recipe=RECIPE)
    assert found.lock.name == newer
    assert find_subject(checkout.layout, lane="cpu", recipe=RECIPE, lock=older).lock.name == older
    path = str(checkout.layout.certs / "locks" / f"{older}.toml")
    assert find_subject(checkout.layout, lane="cpu", recipe=RECIPE, lock=path).lock.name == older


def other_lane(checkout: Checkout) -> list[str]:
    return ["--lock", checkout.lock(lane="cuda")]


def other_model(checkout: Checkout) -> list[str]:
    return ["--lock", checkout.lock(model="gemma3-270m-q4_k_m")]


def no_lock(checkout: Checkout) -> list[str]:
    checkout.lock(lane="cuda")
    return []


def two_locks(checkout: Checkout) -> list[str]:
    text = (checkout.layout.certs / "locks" / "quick.v1.toml").read_text(encoding="utf-8")
    other = checkout.layout.certs / "locks" / "other.v1.toml"
    other.write_text(text.replace('id = "quick"', 'id = "other"'), encoding="utf-8")
    return []


def foreign_lock(checkout: Checkout) -> list[str]:
    path = checkout.layout.root / "quick.v1.toml"
    shutil.copy(checkout.layout.certs / "locks" / "quick.v1.toml", path)
    return ["--lock", str(path)]


def missing_lock(checkout: Checkout) -> list[str]:
    return ["--lock", "quick.v9"]


def changed_prompts(checkout: Checkout) -> list[str]:
    checkout.prompts.write_text(PROMPTS.replace("primary", "Primary"), encoding="utf-8")
    return []


def miscounted_prompts(checkout: Checkout) -> list[str]:
    one = PROMPTS[: PROMPTS.rindex("[[prompts]]")]
    checkout.prompts.write_text(one, encoding="utf-8")
    checkout.lock()
    return []


def missing_prompts(checkout: Checkout) -> list[str]:
    checkout.prompts.unlink()
    return []


def recipe_of_another_lane(checkout: Checkout) -> list[str]:
    path = checkout.layout.recipes / f"{RECIPE}.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('lane = "cpu"', 'lane = "vulkan"'), encoding="utf-8")
    return []


def malformed_recipe(checkout: Checkout) -> list[str]:
    (checkout.layout.recipes / f"{RECIPE}.toml").write_text("schema = 1\n", encoding="utf-8")
    return []


def tampered(checkout: Checkout, program: str) -> list[str]:
    """A build of its own, in which one byte of a program is another."""
    link = checkout.layout.state / "build"
    real = link.resolve()
    link.unlink()
    shutil.copytree(
        real, link, symlinks=True, ignore=lambda folder, names: {name for name in names if name.endswith((".o", ".a"))}
    )
    changed = [path for path in link.rglob(program) if path.is_file()]
    assert changed
    for path in changed:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    return []


def tampered_worker(checkout: Checkout) -> list[str]:
    return tampered(checkout, "dgr-worker")


def tampered_reference(checkout: Checkout) -> list[str]:
    return tampered(checkout, "dgr-reference")


def fixture_model(checkout: Checkout) -> list[str]:
    """A random model under a lock whose evidence would count for a real one."""
    storage = ["--storage", str(checkout.layout.root / "storage")]
    made = checkout.run("model", "synth", "deepseek4", "--layers", "4", "--embedding", "32", "--json", *storage)
    assert made.returncode == 0, made.stderr
    model = json.loads(made.stdout)["id"]
    path = checkout.layout.recipes / f"{RECIPE}.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("smollm2-135m-instruct-q4_1", model), encoding="utf-8")
    checkout.lock(model=model)
    return storage


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (fixture_model, 3, "is a fixture, made by deepseek4/1: it can never give real-hardware"),
        (other_lane, 3, "lock is for the lane cuda"),
        (other_model, 3, "lock is for the model gemma3"),
        (no_lock, 3, "no lock is for"),
        (two_locks, 3, "name one with --lock: other.v1, quick.v1"),
        (foreign_lock, 3, "a lock of this checkout"),
        (missing_lock, 3, "no such lock"),
        (changed_prompts, 6, "the lock names"),
        (miscounted_prompts, 3, "counts 2 prompts, the set has 1"),
        (missing_prompts, 3, "no such prompt set"),
        (recipe_of_another_lane, 3, "this recipe is for the lane vulkan"),
        (malformed_recipe, 3, "recipe"),
        (tampered_worker, 6, "dgr-worker"),
        (tampered_reference, 6, "dgr-reference"),
    ],
)
def test_what_does_not_belong_together_is_refused_before_anything_starts(
    checkout: Checkout, spoil: Any, code: int, words: str
) -> None:
    arguments = spoil(checkout)
    finished = checkout.certify(*arguments)
    assert finished.returncode == code, finished.stderr
    assert words in finished.stderr
    error = json.loads(finished.stdout)["error"]
    assert error["exit_code"] == code
    assert error["where"]
    assert error["remedy"]
    assert checkout.records() == []
    assert not checkout.layout.runs.exists()


@pytest.mark.parametrize(("lane", "code"), [("cuda", 3), ("abacus", 2)])
def test_a_lane_that_is_not_the_recipe_s_is_refused(checkout: Checkout, lane: str, code: int) -> None:
    assert checkout.certify(lane=lane).returncode == code
    assert checkout.records() == []


def test_prompts_on_one_side_of_the_ubatch_are_refused_and_the_run_stays_on_record(checkout: Checkout) -> None:
    path = checkout.layout.recipes / f"{RECIPE}.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("ubatch = 32", "ubatch = 512"), encoding="utf-8")
    finished = checkout.certify()
    assert finished.returncode == 3, finished.stderr
    assert "longer than one ubatch of 512" in finished.stderr
    intent, aborted = checkout.records()
    assert (intent["kind"], aborted["kind"]) == ("intent", "aborted")
    assert "ubatch of 512" in aborted["reason"]


@pytest.mark.parametrize(("context", "words"), [(32, "does not fit into the recipe's context"), (44, "context of 44 positions")])
def test_a_context_too_small_for_a_prompt_is_refused(checkout: Checkout, context: int, words: str) -> None:
    path = checkout.layout.recipes / f"{RECIPE}.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("context = 2048", f"context = {context}"), encoding="utf-8")
    finished = checkout.certify()
    assert finished.returncode == 3, finished.stderr
    assert words in finished.stderr
    assert checkout.records()[-1]["kind"] == "aborted"


@pytest.fixture
def started(checkout: Checkout, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A certification that is comparing, and has minutes of that before it."""
    checkout.lock(decode_steps=1500)
    command = checkout.command("certify", "--lane", "cpu", "--recipe", RECIPE)
    errors = tmp_path / "stderr"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, env=checkout.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            stderr.write(line)
            if b"Comparing" in line:
                break
        yield process
        process.kill()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The workers and the reference that it started. (Its keeper outlives it for a moment, to end what it left behind.)"""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
    return [int(pid) for pid in listed.split() if Path(f"/proc/{pid}/comm").read_text().startswith("dgr-")]


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def wait_until_gone(pids: list[int]) -> None:
    """Returns once none of these processes is left; they are no children of this process, so there is nothing to wait for."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        with os.fdopen(descriptor):
            select.select([descriptor], [], [])


@pytest.mark.parametrize(
    ("number", "code", "reason"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")]
)
def test_an_interrupt_ends_the_run_on_record_and_leaves_nothing_behind(
    checkout: Checkout, started: subprocess.Popen[bytes], number: int, code: int, reason: str
) -> None:
    pids = children(started)
    assert len(pids) == 3
    started.send_signal(number)
    assert started.stderr is not None
    said = started.stderr.read().decode()
    assert started.wait() == code, said
    wait_until_gone(pids)
    assert checkout.records()[-1] == {"kind": "aborted", "intent": 0, "reason": reason}
    assert list(checkout.layout.evidence.rglob("*.json")) == []


def test_a_killed_run_stays_as_an_intent_and_the_matrix_says_so(checkout: Checkout, started: subprocess.Popen[bytes]) -> None:
    pids = children(started)
    started.kill()
    started.wait()
    wait_until_gone(pids)
    assert [record["kind"] for record in checkout.records()] == ["intent"]
    (row,) = checkout.rows()
    assert (row["recipe"], row["status"]) == (RECIPE, "dark")


def test_a_killed_stage_voids_the_run_and_is_named(checkout: Checkout, started: subprocess.Popen[bytes]) -> None:
    pids = children(started)
    (tail,) = [pid for pid in pids if "--layers 15:30" in command_line(pid) or ":30 " in command_line(pid)]
    os.kill(tail, signal.SIGKILL)
    assert started.wait() == 21
    reason = checkout.records()[-1]["reason"]
    assert "stage 1" in reason
    assert "SIGKILL" in reason


def test_a_second_certification_waits_and_says_for_whom(checkout: Checkout, started: subprocess.Popen[bytes]) -> None:
    command = checkout.command("certify", "--lane", "cpu", "--recipe", "no-such-recipe")
    with subprocess.Popen(command, env=checkout.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as second:
        assert second.stderr is not None
        assert f"waiting for process {started.pid}".encode() in second.stderr.readline()
        started.kill()
        started.wait()
        second.communicate()
        assert second.returncode == 3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ubatch": 64}, "execution.ubatch"),
        ({"kv_type_k": "f32"}, "execution.kv_type_k"),
        ({"kv_type_v": "f32"}, "execution.kv_type_v"),
        ({"context": 512}, "execution.context"),
        ({"flash_attention": False}, "execution.flash_attention"),
    ],
)
def test_a_reference_that_runs_in_another_way_is_refused(checkout: Checkout, changes: dict[str, object], field: str) -> None:
    subject = find_subject(checkout.layout, lane="cpu", recipe=RECIPE)
    prepared = subject.prepared
    execution = msgspec.structs.replace(prepared.recipe.execution, **changes)
    other = msgspec.structs.replace(prepared.recipe, execution=execution)
    with (
        LocalReference(checkout.layout, other, prepared.model, prepared.build) as reference,
        LocalRoute(checkout.layout, prepared.recipe, prepared.model, prepared.build, prepared.ranges) as route,
    ):
        stage = route.stages[0].description
        check_stage(prepared, stage)
        with pytest.raises(CertificationVoid, match="the reference says") as caught:
            check_reference(prepared, reference.client.describe(), stage)
    assert caught.value.where == field


def test_programs_that_are_not_what_was_verified_are_refused(checkout: Checkout) -> None:
    prepared = find_subject(checkout.layout, lane="cpu", recipe=RECIPE).prepared
    with (
        LocalReference(checkout.layout, prepared.recipe, prepared.model, prepared.build) as reference,
        LocalRoute(checkout.layout, prepared.recipe, prepared.model, prepared.build, prepared.ranges) as route,
    ):
        stage, whole = route.stages[0].description, reference.client.describe()
    check_reference(prepared, whole, stage)
    for field in ("model.sha256", "runtime.pin", "runtime.stack", "runtime.isa", "boundary.wire"):
        spoilt = type(stage).FromString(stage.SerializeToString())
        spoilt.compatibility[field] = "something else"
        with pytest.raises(CertificationVoid) as caught:
            check_stage(prepared, spoilt)
        assert caught.value.where == field
    whole.compatibility["runtime.stack"] = prepared.build.stack_digest
    with pytest.raises(CertificationVoid, match="carries the patch stack"):
        check_reference(prepared, whole, stage)


def test_an_unknown_recipe_is_refused(checkout: Checkout) -> None:
    with pytest.raises(InputError, match="unknown recipe"):
        find_subject(checkout.layout, lane="cpu", recipe="no-such-recipe")


def test_prepared_is_what_the_recipe_names(checkout: Checkout) -> None:
    subject = find_subject(checkout.layout, lane="cpu", recipe=RECIPE)
    assert isinstance(subject.prepared, Prepared)
    assert subject.recipe_sha256 == sha256_file(checkout.layout.recipes / f"{RECIPE}.toml")
