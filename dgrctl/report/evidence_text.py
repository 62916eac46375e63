"""Signed files and the ledger for people, on stdout."""

from __future__ import annotations

from dgrctl.console import note, show_error
from dgrctl.errors import EvidenceError
from dgrctl.evidence.certification import PREDICATE_TYPE as CERTIFICATION
from dgrctl.evidence.certification import Certification
from dgrctl.evidence.certification_v1 import PREDICATE_TYPE as CERTIFICATION_V1
from dgrctl.evidence.inspection import Result, Shown
from dgrctl.evidence.ledger_chain import Chain, Run
from dgrctl.evidence.ledger_records import Outcome
from dgrctl.evidence.matrix import PREDICATE_TYPE as MATRIX
from dgrctl.evidence.matrix import Matrix
from dgrctl.evidence.parsing import convert
from dgrctl.evidence.verdict import reasons
from dgrctl.evidence.verify import read_predicate
from dgrctl.report.matrix_table import print_matrix
from dgrctl.report.table import print_table


def print_result(result: Result) -> None:
    """One file's verification: a line on stdout where it verifies, the reason on stderr where it does not."""
    if result.verified:
        said = f"{result.kind}, verdict {result.verdict}" if result.verdict else str(result.kind)
        print(f"verified: {result.file}: {said}; trust: {result.trust}", flush=True)
        for remark in result.notes:
            note(f"  note: {remark}")
    else:
        what = f"{result.file} does not verify: {result.reason}"
        show_error(EvidenceError(what, where=result.where, remedy=result.remedy, detail=result.detail))


def print_shown(shown: Shown, *, wide: bool = False) -> None:
    """What a signed file says."""
    statement = shown.statement
    print(f"file       {shown.file}\npredicate  {statement.predicate_type}")
    for signer in shown.signatures:
        print(f"signed by  {signer.keyid} ({signer.trust or 'unknown here'})")
    for subject in statement.subject:
        print(f"subject    {subject.name} {subject.digest.sha256}")
    if statement.predicate_type in (CERTIFICATION, CERTIFICATION_V1):
        _print_certification(read_predicate(statement, shown.file))
    elif statement.predicate_type == MATRIX:
        print_matrix(convert(statement.predicate, Matrix, what="matrix", where=shown.file), wide=wide)
    print(flush=True)
    print_result(shown.result)


def _print_certification(certification: Certification) -> None:
    totals, speed = certification.parity.totals, certification.speed
    lines = {
        "run": f"{certification.run.nonce}, {certification.run.started} to {certification.run.finished}",
        "lane": f"{certification.lane}: {certification.device.label}, class {certification.evidence_class}",
        "under": certification.environment.before.virtualisation,
        "recipe": f"{certification.recipe.name}, wire {certification.recipe.wire}, ranges {_ranges(certification)}",
        "model": certification.model.id,
        "lock": f"{certification.lock.id}.v{certification.lock.version}",
        "logits": _differing(totals.logits_compared, totals.logits_differing, totals.max_abs_difference),
        "boundary": _differing(
            totals.boundary_values_compared, totals.boundary_values_differing, totals.boundary_max_abs_difference
        ),
        "tokens": f"{totals.tokens_differing} of {totals.tokens_compared} differ",
        "prefill": f"{speed.prefill.ratio} of the whole's speed ({speed.prefill.low} to {speed.prefill.high}), "
        f"at least {speed.min_ratio_prefill} demanded",
        "decode": f"{speed.decode.ratio} of the whole's speed ({speed.decode.low} to {speed.decode.high}), "
        f"at least {speed.min_ratio_decode} demanded",
        "verdict": certification.verdict,
    }
    for name, value in lines.items():
        print(f"{name:10} {value}")
    for reason in reasons(certification):
        print(f"because    {reason}")


def _differing(compared: int, differing: int, difference: str) -> str:
    return f"{differing} of {compared} differ" + (f", by up to {difference}" if differing else "")


def _ranges(certification: Certification) -> str:
    return ", ".join(f"[{begin}, {end})" for begin, end in certification.recipe.ranges)


def print_ledger(chain: Chain, *, wide: bool = False) -> None:
    """A line for each run, in the order in which they began."""
    headings = ("record", "began", "lane", "recipe", "device", "lock", "nonce", "ended")
    print_table(headings, [_run_cells(run) for run in chain.runs()], wide=wide)


def _run_cells(run: Run) -> tuple[str, ...]:
    about = run.intent.combination
    lock = f"{run.intent.lock.id}.v{run.intent.lock.version}"
    ending = run.ending
    if ending is None:
        ended = "under way, or died: counts as aborted"
    elif isinstance(ending, Outcome):
        ended = f"{ending.verdict}: {ending.evidence}"
    else:
        ended = f"aborted: {ending.reason}"
    return (str(run.record.index), run.record.time, about.lane, about.recipe, about.device, lock, run.record.nonce, ended)
