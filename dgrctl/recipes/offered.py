"""Wires and cache types that the worker serves. Which architectures it does: :mod:`dgrctl.recipes.architectures`."""

from __future__ import annotations

# Types of a boundary on the wire.
WIRES = ("f32", "bf16")

# Why a wire that people ask for is not offered.
REFUSED_WIRES = {
    "f16": "residuals of real models go past 22,000 and its range ends at 65,504; it is known to corrupt the routing of experts",
}

KV_TYPES = ("f16", "f32", "q8_0")
