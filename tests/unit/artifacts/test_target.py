"""The real DeepSeek V4 as it is publicly known: its numbers fit each other to the byte, and nothing of it can be pulled."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from small_models import make_checkout

from dgrctl.artifacts.deepseek4 import TensorShape, tensor_shapes
from dgrctl.artifacts.provision import known_manifest, provision
from dgrctl.artifacts.target import TargetManifest, load_target, target_ids
from dgrctl.errors import InputError
from dgrctl.layout import Layout

ROOT = Path(__file__).resolve().parents[3]
TARGET = "deepseek-v4-flash"


@pytest.fixture(scope="module")
def target() -> TargetManifest:
    return load_target(Layout(ROOT), TARGET)


@pytest.mark.parametrize("target_id", target_ids(Layout(ROOT)))
def test_shipped_targets_load(target_id: str) -> None:
    assert load_target(Layout(ROOT), target_id).files


def test_it_is_the_model_that_is_aimed_at(target: TargetManifest) -> None:
    sizes = target.dimensions
    assert target.revision == "60d8d70770c6776ff598c94bb586a859a38244f1"
    assert (len(sizes.ratios), sizes.prediction_layers) == (43, 1)
    assert (sizes.streams, sizes.width) == (4, 4096)
    assert (sizes.experts, sizes.active_experts, sizes.hash_layers) == (256, 6, 3)


def official_bytes(shape: TensorShape) -> int:
    """Bytes of a tensor as the publisher stores it: FP4 with a scale for 32, FP8 with one for 128 x 128, BF16, F32 or I64."""
    count = math.prod(shape.shape)
    if shape.use in ("expert", "expert-down"):
        return count // 2 + count // 32
    if shape.use in ("attention", "shared", "indexer-query", "prediction"):
        return count + math.prod(-(-length // 128) for length in shape.shape)
    if shape.use == "expert-table":
        return count * 8
    return count * (2 if shape.use in ("embedding", "output", "compressor", "router", "norm") else 4)


def official_tensors(shapes: list[TensorShape], experts: int) -> int:
    """How many tensors of the publisher's they are: experts one by one, quantised ones with a scale."""
    scaled = {"expert": 2 * experts, "expert-down": 2 * experts, "attention": 2, "shared": 2, "indexer-query": 2, "prediction": 4}
    return sum(scaled.get(shape.use, 1) for shape in shapes)


def test_every_official_file_has_the_size_that_the_dimensions_give(target: TargetManifest) -> None:
    """Files 2 to 44 hold one layer each; what is left is a header of about a hundred bytes a tensor."""
    shapes = list(tensor_shapes(target.dimensions))
    for layer in range(43):
        own = [shape for shape in shapes if shape.name.startswith(f"blk.{layer}.")]
        header = target.files[layer + 1].size - sum(official_bytes(shape) for shape in own)
        assert 100 < header / official_tensors(own, target.dimensions.experts) < 120
    assert target.files[0].size - official_bytes(shapes[0]) == 96
    output = [shape for shape in shapes if shape.name.startswith("output")]
    assert target.files[44].size - sum(official_bytes(shape) for shape in output) == 400
    # The prediction block brings a head of hyper-connections of its own.
    prediction = [shape for shape in shapes if shape.name.startswith("blk.43.")]
    own_head = [shape for shape in shapes if shape.name.startswith("output_hc")]
    header = target.files[45].size - sum(official_bytes(shape) for shape in (*prediction, *own_head))
    assert 80 < header / official_tensors([*prediction, *own_head], target.dimensions.experts) < 120


@pytest.mark.parametrize("command", [provision, known_manifest], ids=["pull", "look up"])
def test_it_cannot_be_pulled(command: Callable[[Layout, str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGR_STORAGE", str(tmp_path))
    with pytest.raises(InputError, match="is a target, not a model that can be brought here") as refusal:
        command(Layout(ROOT), TARGET)
    assert "unknown: size and SHA-256 of a GGUF set" in (refusal.value.detail or "")
    assert "recipe place" in (refusal.value.remedy or "")


BAD = {
    "another id": ('id = "deepseek-v4-flash"', 'id = "other"', "id"),
    "a type that is none": ('router = "BF16"', 'router = "FP4"', "types.router"),
    "blocks that do not fit": ('mix-base = "F32"', 'mix-base = "Q8_0"', "types.mix-base"),
    "a missing type": ('shared = "Q8_0"\n', "", "types.shared"),
    "a short revision": ("60d8d70770c6776ff598c94bb586a859a38244f1", "60d8d707", "revision"),
    "an unknown dimension": ("streams = 4", "streams = 4\nhalos = 1", "dimensions.halos"),
    "a file twice": ("model-00002-of", "model-00001-of", "files"),
    "no source": (r"(?s)sources = \[.*?\n\]", "sources = []", "sources"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_contradicts_itself_is_refused(tmp_path: Path, case: str) -> None:
    layout = make_checkout(tmp_path)
    layout.target_manifests.mkdir()
    old, new, field = BAD[case]
    text = (ROOT / "manifests" / "targets" / f"{TARGET}.toml").read_text()
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    path = layout.target_manifests / f"{TARGET}.toml"
    path.write_text(changed)
    with pytest.raises(InputError) as refusal:
        load_target(layout, TARGET)
    assert (refusal.value.where or "").endswith(field)
