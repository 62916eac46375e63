"""What the current patch stack and worker can serve. The one place in Python that says so."""

from __future__ import annotations

# Architectures with the layer window. The worker keeps the same list and refuses every other by name: without the window's
# edits in its graph an architecture crashes or, worse, computes something else.
SUPPORTED_ARCHITECTURES = frozenset({"llama"})

# Types of a boundary on the wire.
WIRES = ("f32", "bf16")

# Why a wire that people ask for is not offered.
REFUSED_WIRES = {
    "f16": "residuals of real models go past 22,000 and its range ends at 65,504; it is known to corrupt the routing of experts",
}

KV_TYPES = ("f16", "f32", "q8_0")
