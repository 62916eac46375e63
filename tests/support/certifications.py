"""Checkouts with a lock and a key, and certifications that are complete and consistent under that lock."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Literal

import msgspec

from dgrctl.evidence.certification import (
    PREDICATE_TYPE,
    BoundaryParity,
    Build,
    Certification,
    Completion,
    CpuTimes,
    Device,
    Environment,
    LedgerPosition,
    LockReference,
    ModelReference,
    Parity,
    ParityRun,
    PromptSetReference,
    Reading,
    RecipeReference,
    Run,
    Speed,
    SpeedPair,
    device_identity,
)
from dgrctl.evidence.dsse import sign
from dgrctl.evidence.issue import write_certification
from dgrctl.evidence.keys import signing_key
from dgrctl.evidence.ledger import Ledger, new_nonce
from dgrctl.evidence.ledger_records import Intent
from dgrctl.evidence.lock import Lock, load_lock
from dgrctl.evidence.looks import estimates
from dgrctl.evidence.matrix import LaneState
from dgrctl.evidence.statement import Subject, statement_bytes
from dgrctl.evidence.totals import actual_counts, difference_string, expected_counts, logit_rows, parity_totals
from dgrctl.evidence.verdict import gates_of, verdict_of
from dgrctl.evidence.verify import subjects_of
from dgrctl.layout import Layout

PROMPT_SET = """\
schema = 1
name = "core.v1"
[[prompts]]
id = "short"
language = "en"
text = "Name a river."
[[prompts]]
id = "long"
language = "en"
text = "Name three rivers in Europe and say through which countries each of them flows."
"""

LOCK = """
schema = 1
id = "cpu.tiny"
version = 1
lane = "cpu"
model = "tiny"
class = "real-hardware"
valid_days = 90
locked_at = "2026-01-01"
[prompt_set]
name = "core.v1"
sha256 = "5555555555555555555555555555555555555555555555555555555555555555"
prompts = 2
[parity]
require = "bit-identical"
decode_steps = 4
outputs = ["all", "last"]
[speed]
warmup = 1
pairs = 7
prompt_tokens = 16
generate_tokens = 8
min_ratio_prefill = "0.80"
min_ratio_decode = "0.80"
confidence = "0.95"
bootstrap_resamples = 1000
decode_slice_tokens = 8
""".replace("5" * 64, hashlib.sha256(PROMPT_SET.encode()).hexdigest())

MODEL = ModelReference(id="tiny", set_sha256="4" * 64, architecture="llama", layers=30, vocabulary=100, residual_width=8)
DEVICE = Device(name="Example CPU 9000", isa="x86-64-v3", details={"sockets": "1"})
PROMPTS = {"short": 5, "long": 20}

LANES = [
    LaneState(lane="cpu", device=device_identity(DEVICE.name, DEVICE.details), isa=DEVICE.isa, unavailable=None),
    LaneState(lane="cuda", device=None, isa=None, unavailable="no NVIDIA device"),
]


def make_checkout(root: Path) -> Layout:
    """A checkout with one lock, its prompt set and nothing else."""
    (root / "manifests" / "upstream").mkdir(parents=True)
    (root / "certs" / "locks").mkdir(parents=True)
    (root / "certs" / "prompts").mkdir()
    (root / "certs" / "prompts" / "core.v1.toml").write_text(PROMPT_SET)
    (root / "certs" / "locks" / "cpu.tiny.v1.toml").write_text(LOCK)
    return Layout(root)


def the_lock(layout: Layout) -> Lock:
    """The lock of :func:`make_checkout`."""
    return load_lock(layout.certs / "locks" / "cpu.tiny.v1.toml")


def certification(
    lock: Lock,
    *,
    nonce: str = "ab" * 16,
    intent: LedgerPosition | None = None,
    recipe: str = "tiny.cpu-2stage",
    wire: Literal["f32", "bf16"] = "f32",
    device: Device = DEVICE,
    differing: int = 0,
    split_us: int = 10_500,
    finished: str = "2026-11-29T12:10:00Z",
    speed: Speed | None = None,
) -> Certification:
    """A complete certification whose derived parts follow from its raw ones; the whole takes 10,000 us.

    Args:
        differing: Logits that differ in each run, and values in each boundary.
        split_us: What the split takes.
        speed: Instead of such pairs.
    """
    difference = difference_string(0.5 if differing else 0.0)
    runs = tuple(_run(name, outputs, lock, differing, difference) for outputs in lock.parity.outputs for name in PROMPTS)
    rows = sum(run.prompt_tokens + run.decode_steps for run in runs)
    boundaries = (
        BoundaryParity(
            cut=15,
            rows_compared=rows,
            values_compared=rows * MODEL.residual_width,
            values_differing=differing,
            max_abs_difference=difference,
        ),
    )
    parity = Parity(
        prompt_set=PromptSetReference(name=lock.prompt_set.name, sha256=lock.prompt_set.sha256),
        totals=parity_totals(runs, boundaries),
        runs=runs,
        boundaries=boundaries,
    )
    speed = speed or _speed(lock, nonce, split_us)
    gates = gates_of(parity, speed, lock.speed)
    return Certification(
        schema=2,
        evidence_class="real-hardware",
        lane="cpu",
        run=Run(
            nonce=nonce,
            intent=intent or LedgerPosition(index=0, sha256="0" * 64),
            started="2026-11-29T12:00:00Z",
            finished=finished,
            program="dgrctl 0.1.0",
        ),
        lock=LockReference(id=lock.id, version=lock.version, sha256=lock.digest()),
        recipe=RecipeReference(name=recipe, sha256="3" * 64, wire=wire, ranges=((0, 15), (15, 30))),
        model=MODEL,
        device=device,
        build=Build(
            pin="c" * 40,
            stack_sha256="d" * 64,
            record_sha256="e" * 64,
            worker_sha256="1" * 64,
            reference_sha256="2" * 64,
        ),
        environment=Environment(before=_reading("2026-11-29T12:00:01Z"), after=_reading("2026-11-29T12:09:59Z")),
        parity=parity,
        speed=speed,
        completion=Completion(
            marker="complete",
            expected=expected_counts(lock, list(PROMPTS.values()), MODEL, cuts=1, pairs=len(speed.pairs)),
            actual=actual_counts(parity, speed),
        ),
        verdict=verdict_of(gates),
        gates=gates,
    )


def _run(name: str, outputs: Any, lock: Lock, differing: int, difference: str) -> ParityRun:
    tokens, steps = PROMPTS[name], lock.parity.decode_steps
    rows = logit_rows(outputs, tokens, steps)
    return ParityRun(
        prompt=name,
        outputs=outputs,
        prompt_tokens=tokens,
        decode_steps=steps,
        logit_rows=rows,
        logits_compared=rows * MODEL.vocabulary,
        logits_differing=differing,
        max_abs_difference=difference,
        greedy_rows_differing=0,
        tokens_compared=steps + 1,
        tokens_differing=0,
    )


def _speed(lock: Lock, nonce: str, split_us: int) -> Speed:
    pairs = tuple(
        SpeedPair(
            first="whole" if number % 2 else "split",
            load_1m="0.50",
            stolen_ppm=0,
            whole_prefill_us=10_000 + number,
            whole_decode_us=10_000 - number,
            split_prefill_us=split_us,
            split_decode_us=split_us + number,
        )
        for number in range(lock.speed.pairs)
    )
    return speed_of(lock, nonce, pairs)


def speed_of(lock: Lock, nonce: str, pairs: tuple[SpeedPair, ...]) -> Speed:
    """A complete speed section of these pairs."""
    prefill, decode = estimates(pairs, lock.speed, nonce)
    return Speed(
        warmup=lock.speed.warmup,
        prompt_tokens=lock.speed.prompt_tokens,
        generate_tokens=lock.speed.generate_tokens,
        whole_threads=2,
        stage_threads=2,
        decode_slice_tokens=8,
        pairs=pairs,
        prefill=prefill,
        decode=decode,
        confidence=lock.speed.confidence,
        bootstrap_resamples=lock.speed.bootstrap_resamples,
        min_ratio_prefill=lock.speed.min_ratio_prefill,
        min_ratio_decode=lock.speed.min_ratio_decode,
        looks=lock.speed.looks,
    )


def _reading(at: str) -> Reading:
    return Reading(
        captured_at=at,
        cpu_model=DEVICE.name,
        cpu_flags=("avx2", "fma"),
        cpus=2,
        kernel="Linux 6.1.0",
        virtualisation="hypervisor",
        load_average=("0.10", "0.20", "0.30"),
        memory_total_kib=8_000_000,
        memory_available_kib=7_000_000,
        governor=None,
        frequency_khz=(2_100_000, 2_100_000),
        throttle_events=None,
        temperature_millicelsius=None,
        times=CpuTimes(total=1000, stolen=0),
    )


def certify(layout: Layout, **changes: Any) -> tuple[Path, Certification]:
    """A whole run of :func:`certification` in ``layout``: intent, signed file, outcome."""
    lock, nonce = the_lock(layout), new_nonce()
    template = certification(lock, nonce=nonce, **changes)
    position = Ledger(layout).intent(nonce, Intent.of(template))
    run = certification(lock, nonce=nonce, intent=position, **changes)
    return write_certification(layout, run, signing_key(layout)), run


def signed(
    layout: Layout,
    found: Certification,
    *,
    subjects: tuple[Subject, ...] | None = None,
    predicate_type: str = PREDICATE_TYPE,
) -> bytes:
    """Signs a certification as it stands, without the checks that a run goes through."""
    payload = statement_bytes(subjects_of(found) if subjects is None else subjects, predicate_type, found)
    return sign(payload, [signing_key(layout)])


def changed(document: msgspec.Struct, path: str, change: Callable[[Any], Any]) -> Any:
    """A copy of a struct with the field at ``path`` ("parity.runs.0.logits_differing") changed."""
    name, _, rest = path.partition(".")
    inner = document[int(name)] if isinstance(document, tuple) else getattr(document, name)
    new = changed(inner, rest, change) if rest else change(inner)
    if isinstance(document, tuple):
        return (*document[: int(name)], new, *document[int(name) + 1 :])
    return msgspec.structs.replace(document, **{name: new})


def on(text: str) -> date:
    """A date."""
    return date.fromisoformat(text)
