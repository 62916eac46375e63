"""The predicate ``lane-certification/v2``: what one certification run measured, on what, judged by which lock.

``dgrctl.certify`` fills these structs; :func:`dgrctl.evidence.issue.write_certification` signs them, whatever the verdict, and
:mod:`dgrctl.evidence.verify` repeats every sum in them. Derived parts are never written by hand:

* ``speed.prefill`` and ``speed.decode`` come from :func:`dgrctl.evidence.looks.estimates`,
* ``parity.totals`` and ``completion.actual`` from :func:`dgrctl.evidence.totals.parity_totals` and ``actual_counts``,
* ``gates`` and ``verdict`` from :func:`dgrctl.evidence.verdict.gates_of` and ``verdict_of``.

Nothing in it is a sentence that somebody compares: sentences are made from the gates when they are shown. Version 1 held
sentences; :mod:`dgrctl.evidence.certification_v1` reads it.

A run of which any part is missing has no certification: it stays in the ledger as an aborted run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from dgrctl.evidence.fields import (
    CommitHex,
    Count,
    Decimal,
    Difference,
    EvidenceClass,
    Microseconds,
    Name,
    Nonce,
    Outputs,
    Positive,
    Record,
    Sha256Hex,
    Text,
    Timestamp,
    Verdict,
)

PREDICATE_TYPE = "https://dgr.dev/lane-certification/v2"


def device_identity(name: str, details: Mapping[str, str]) -> str:
    """A device told from others of the same name: ``AMD EPYC (family 25, model 1, stepping 1, vendor AuthenticAMD)``."""
    told = ", ".join(f"{key} {value}" for key, value in sorted(details.items()))
    return f"{name} ({told})" if told else name


def device_label(identity: str, isa: str) -> str:
    """A device and the ISA that it ran, as matrix rows and ledger records name both."""
    return f"{identity} [{isa}]"


def is_label_of(label: str, identity: str) -> bool:
    """Whether ``label`` names this device, with whatever ISA."""
    return label.startswith(f"{identity} [")


class LedgerPosition(Record, frozen=True):
    """Where in the ledger a run's intent stands. ``sha256`` is of the record's line without its line feed."""

    index: Count
    sha256: Sha256Hex


class Run(Record, frozen=True):
    """One run. ``started`` is taken before anything is measured, ``finished`` after the last measurement."""

    nonce: Nonce
    intent: LedgerPosition
    started: Timestamp
    finished: Timestamp
    program: Text  # "dgrctl 0.1.0"


class LockReference(Record, frozen=True):
    """The lock this run is judged by. ``sha256`` is of the file's bytes (``Lock.digest()``)."""

    id: Name
    version: Positive
    sha256: Sha256Hex


class RecipeReference(Record, frozen=True):
    """The recipe as it ran. ``sha256`` is of the recipe file's bytes."""

    name: Name
    sha256: Sha256Hex
    wire: Literal["f32", "bf16"]
    ranges: Annotated[tuple[tuple[Count, Positive], ...], msgspec.Meta(min_length=1)]  # half-open, head to tail


class ModelReference(Record, frozen=True):
    """The model set. ``residual_width`` is the number of values that cross a cut for one position (streams x width).

    ``generator`` names what made a fixture, as the model's own files say; a real model has none.
    """

    id: Name
    set_sha256: Sha256Hex
    architecture: Name
    layers: Positive
    vocabulary: Positive
    residual_width: Positive
    generator: Text | None = None


class Process(Record, frozen=True):
    """A process that ran, and the SHA-256 of the compatibility document that it stated, in the form of RFC 8785.

    The reference's document has no fields about a boundary or a patch stack, so its digest is another than the stages'.
    """

    phase: Literal["parity", "speed"]
    name: Name  # "reference", "stage-0", "stage-1", …
    compatibility_sha256: Sha256Hex


class Device(Record, frozen=True):
    """The device that computed, and the ISA that it computed with. All of it is part of the matrix row's identity."""

    name: Text
    isa: Text
    details: dict[Text, Text]

    @property
    def label(self) -> str:
        """How matrix rows and ledger records name it."""
        return device_label(device_identity(self.name, self.details), self.isa)


class Build(Record, frozen=True):
    """The two programs. ``record_sha256`` is of the build record's file bytes."""

    pin: CommitHex
    stack_sha256: Sha256Hex
    record_sha256: Sha256Hex
    worker_sha256: Sha256Hex
    reference_sha256: Sha256Hex


class CpuTimes(Record, frozen=True):
    """Ticks since boot, over all processors: all of them, and those that a hypervisor gave to others."""

    total: Count
    stolen: Count


class CpuQuota(Record, frozen=True):
    """The processor quota of this process's cgroup and those above it.

    ``cpus`` is the tightest quota, in processors. The counts are sums over all cgroups with a quota, since they were made.
    """

    cpus: Decimal
    periods: Count
    throttled_periods: Count
    throttled_us: Count


class Reading(Record, frozen=True):
    """One look at the machine. What the kernel does not show is null, never guessed."""

    captured_at: Timestamp
    cpu_model: Text
    cpu_flags: tuple[Text, ...]
    cpus: Positive  # that the run may use
    kernel: Text
    virtualisation: Text  # "none", or what the processor runs under
    load_average: tuple[Decimal, ...]  # over 1, 5 and 15 minutes
    memory_total_kib: Count
    memory_available_kib: Count
    governor: Text | None
    frequency_khz: tuple[Count, ...] | None  # one per processor
    throttle_events: Count | None
    temperature_millicelsius: int | None  # of the hottest zone
    times: CpuTimes
    cpu_quota: CpuQuota | None = None  # null: no quota is set, or none can be read
    cpu_pressure_us: Count | None = None  # since boot: the time for which some task waited for a processor


class Environment(Record, frozen=True):
    """The machine before and after the run."""

    before: Reading
    after: Reading


class ParityRun(Record, frozen=True):
    """One prompt with one choice of output rows, against the reference's replay of the same decode calls.

    The prompt is prefilled, then exactly ``decode_steps`` decode calls follow, each fed the token chosen before it, past any end
    token (ask for ``decode_steps + 1`` tokens). So with ``outputs`` "all" there are prompt_tokens + decode_steps rows of logits,
    with "last" 1 + decode_steps, and decode_steps + 1 chosen tokens.
    """

    prompt: Name
    outputs: Outputs
    prompt_tokens: Positive
    decode_steps: Positive
    logit_rows: Positive
    logits_compared: Positive  # logit_rows x vocabulary
    logits_differing: Count
    max_abs_difference: Difference
    greedy_rows_differing: Count  # rows whose largest logit is another token's
    tokens_compared: Positive
    tokens_differing: Count


class BoundaryParity(Record, frozen=True):
    """The residual at one cut over all parity runs, against the whole model's residual there."""

    cut: Positive  # between layers cut - 1 and cut
    rows_compared: Positive
    values_compared: Positive  # rows_compared x residual_width
    values_differing: Count
    max_abs_difference: Difference


class ParityTotals(Record, frozen=True):
    """Sums and maxima over the runs and the cuts. ``positions`` counts the rows fed: prompt_tokens + decode_steps of each run."""

    runs: Positive
    positions: Positive
    logits_compared: Positive
    logits_differing: Count
    max_abs_difference: Difference
    greedy_rows_differing: Count
    boundary_values_compared: Count
    boundary_values_differing: Count
    boundary_max_abs_difference: Difference
    tokens_compared: Positive
    tokens_differing: Count


class PromptSetReference(Record, frozen=True):
    """The prompt set. ``sha256`` is of the file's bytes."""

    name: Name
    sha256: Sha256Hex


class Parity(Record, frozen=True):
    """Every prompt of the set with every choice of output rows, and every cut of the route."""

    prompt_set: PromptSetReference
    totals: ParityTotals
    runs: Annotated[tuple[ParityRun, ...], msgspec.Meta(min_length=1)]
    boundaries: tuple[BoundaryParity, ...]


class SpeedPair(Record, frozen=True):
    """One pair, its two halves run in turns; ``first`` says which came first. Raw durations.

    ``load_1m`` was read before the pair. Of its duration, in parts per million: ``stolen_ppm`` is the share of processor time
    that a hypervisor gave to others, and ``pressure_ppm`` the time for which some task of the machine waited for a processor
    (the kernel's pressure stall information; null where the kernel has none). ``throttled_periods`` counts the periods in which
    a processor quota stopped this process's cgroup or one above it; null where no quota is set.
    """

    first: Literal["whole", "split"]
    load_1m: Decimal
    stolen_ppm: Count
    whole_prefill_us: Microseconds
    whole_decode_us: Microseconds
    split_prefill_us: Microseconds
    split_decode_us: Microseconds
    pressure_ppm: Count | None = None
    throttled_periods: Count | None = None


class RatioEstimate(Record, frozen=True):
    """Speed of the split as a fraction of the whole's: whole time / split time, formed within each pair.

    ``ratio`` is the median over the pairs, ``low`` and ``high`` its interval by the lock's rule, all cut to six decimals.
    """

    whole_median_us: Microseconds
    split_median_us: Microseconds
    ratio: Decimal
    low: Decimal
    high: Decimal


class Speed(Record, frozen=True):
    """Interleaved pairs of whole and split, after warm-up, in turns of ``decode_slice_tokens`` (0: in one piece).

    Where ``looks`` is empty, the intervals are bootstrapped, seeded by the run's nonce. Elsewhere they are exact, the pairs are
    those up to the look that decided, and ``bootstrap_resamples`` is 0.
    """

    warmup: Count
    prompt_tokens: Positive
    generate_tokens: Positive
    whole_threads: Positive
    stage_threads: Positive
    pairs: Annotated[tuple[SpeedPair, ...], msgspec.Meta(min_length=1)]
    prefill: RatioEstimate
    decode: RatioEstimate
    confidence: Decimal
    bootstrap_resamples: Count
    min_ratio_prefill: Decimal
    min_ratio_decode: Decimal
    decode_slice_tokens: Count = 0
    looks: tuple[Positive, ...] = ()


class Counts(Record, frozen=True):
    """How much there is to compare and measure."""

    parity_runs: Positive
    logits: Positive
    boundary_values: Count
    tokens: Positive
    speed_pairs: Positive


class Completion(Record, frozen=True):
    """``expected`` is fixed by lock, prompt set, model and recipe before the run; ``actual`` is counted from its results."""

    marker: Literal["complete"]
    expected: Counts
    actual: Counts


class Gate(Record, frozen=True):
    """One demand of the lock, and whether the run met it.

    For "logits", "boundary-values" and "tokens", ``measured`` is the number that differ from the reference, and at most
    ``required`` may differ. For "prefill" and "decode", ``measured`` is the lower bound of the ratio's interval, and it must
    reach ``required``.
    """

    id: Literal["logits", "boundary-values", "tokens", "prefill", "decode"]
    measured: Decimal
    required: Decimal
    passed: bool


class Certification(Record, frozen=True):
    """The predicate."""

    schema: Literal[2]
    evidence_class: EvidenceClass
    lane: Name
    run: Run
    lock: LockReference
    recipe: RecipeReference
    model: ModelReference
    device: Device
    build: Build
    environment: Environment
    parity: Parity
    speed: Speed
    completion: Completion
    verdict: Verdict
    gates: tuple[Gate, ...]  # every one, in a fixed order
    processes: tuple[Process, ...] = ()  # in evidence of older versions there are none
