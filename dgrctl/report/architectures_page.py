"""docs/architectures.md: the roster as a page."""

from __future__ import annotations

from collections import Counter

from dgrctl.recipes.architectures import Architecture, Roster

_HEAD = """\
# Architectures

<!-- Written by dgrctl arch certify. Do not edit. -->

Which architectures of the pin can be split into stages, as runs have shown: of each, upstream's own generator makes small random
models, and every interior cut of them, and a chain of single layers, is compared with the whole model in unpatched upstream, bit
by bit. `dgrctl arch check NAME` runs one again, `make certify-archs` all of them. The worker is compiled with the same roster
(`worker/engine/architectures.json`) and refuses an architecture that is neither certified nor restricted.

- **certified**: no logit differs at any cut.
- **restricted**: the same, but for cuts that the engine refuses by name.
- **unsupported**: it cannot be split, or there is no model to prove it with; the reason says which.
- **not a decoder**: it keeps no state between calls, so there is nothing for a stage to own.
"""


def architectures_page(roster: Roster) -> str:
    """The page for ``roster``, in Markdown."""
    counts = Counter(row.status for row in roster.architectures)
    summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    cuts = sum(row.cuts for row in roster.architectures)
    logits = sum(row.logits for row in roster.architectures)
    lines = [
        _HEAD,
        f"Pin `{roster.pin}`, patch stack `{roster.stack_digest}`: {len(roster.architectures)} architectures: {summary}.",
        f"{cuts:,} cuts were run, {logits:,} logits compared.",
        "",
        "| Architecture | Status | Cuts | Logits | Reason |",
        "|---|---|--:|--:|---|",
        *(_row(row) for row in roster.architectures),
    ]
    return "\n".join(lines) + "\n"


def _row(row: Architecture) -> str:
    reason = row.reason.replace("|", "\\|").replace("\n", " ")
    return f"| `{row.name}` | {row.status} | {row.cuts:,} | {row.logits:,} | {reason} |"
