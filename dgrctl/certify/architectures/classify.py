"""From what runs showed to a row of the roster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgrctl.certify.architectures.lattice import RouteOutcome
from dgrctl.recipes.architectures import Architecture, Status

# Why an architecture behaves as its runs show, where upstream's source says so. It classifies nothing.
EXPLANATIONS = {
    "arwkv7": "every layer mixes in the values of layer 0",
    "gemma3n": "per-layer embeddings, KV shared between layers, and a residual of several streams",
    "gemma4": "per-layer embeddings, and KV shared between layers",
    "rwkv7": "every layer mixes in the values of layer 0",
    "kimi-k3": "every layer mixes in what earlier blocks took in",
    "t5": "an encoder beside the decoder",
    "talkie": "every layer adds the token embedding again",
}


@dataclass(frozen=True)
class ModelOutcome:
    """One synthesised model: the routes that were run, or why none could be; ``decoder`` is False where it keeps no state."""

    name: str
    routes: Sequence[RouteOutcome] = ()
    problem: str = ""
    decoder: bool = True


def classify(name: str, models: Sequence[ModelOutcome], problem: str = "") -> Architecture:
    """The row of the architecture ``name``.

    Args:
        problem: Why there are no models.
    """
    routes = [route for model in models for route in model.routes]
    interior = [route for route in routes if len(route.cuts) == 1]
    status, reason = _verdict(models, routes, problem)
    explanation = EXPLANATIONS.get(name)
    if status != "certified" and explanation:
        reason = f"{explanation}: {reason}"
    return Architecture(
        name=name,
        status=status,
        cuts=sum(1 for route in interior if route.logits.compared),
        logits=sum(route.logits.compared for route in routes),
        reason=reason,
    )


def _verdict(models: Sequence[ModelOutcome], routes: Sequence[RouteOutcome], problem: str) -> tuple[Status, str]:
    if any(not model.decoder for model in models):
        return "not a decoder", "it keeps no state between calls"
    problem = problem or next((model.problem for model in models if model.problem), "")
    if problem or not routes:
        return "unsupported", problem or "its models have one layer, so there is no cut"
    wrong = [route for route in routes if not route.identical and not route.refused]
    forbidden = [route for route in routes if route.refused]
    if wrong or len(forbidden) == len(routes):
        return "unsupported", _describe((wrong or forbidden)[0])
    if not forbidden:
        return "certified", ""
    named = ", ".join(dict.fromkeys(str(route.cuts[0]) for route in forbidden if len(route.cuts) == 1))
    return "restricted", f"forbidden at layer {named} of the synthesised model: {forbidden[0].problem}"


def _describe(route: RouteOutcome) -> str:
    where = f"cut at layer {route.cuts[0]}" if len(route.cuts) == 1 else "one layer a stage"
    if route.problem:
        return f"{where}: {route.problem}"
    return f"{where}: {route.logits.differing} of {route.logits.compared} logits differ"
