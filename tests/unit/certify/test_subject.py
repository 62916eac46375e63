"""Which evidence a model can give: none that a fixture makes counts for a real one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from certifications import certification, make_checkout, the_lock
from fixture_models import FixtureModels
from small_models import make_checkout as make_models_checkout

from dgrctl.artifacts.gguf_header import read_header
from dgrctl.artifacts.inventory import take_inventory
from dgrctl.artifacts.local import LocalModel, open_set
from dgrctl.artifacts.manifest import load_fixture_manifest
from dgrctl.artifacts.provision import verified_model
from dgrctl.artifacts.synth.deepseek4 import GENERATOR
from dgrctl.certify.subject import require_class
from dgrctl.errors import InputError
from dgrctl.evidence.consistency import problems
from dgrctl.evidence.fields import EvidenceClass
from dgrctl.layout import Layout

REAL: tuple[EvidenceClass, ...] = ("real-model", "real-hardware", "release")


@pytest.mark.parametrize("wanted", REAL)
def test_no_run_of_a_fixture_starts_under_a_lock_for_real_models(
    fixture_models: FixtureModels, tmp_path: Path, wanted: EvidenceClass
) -> None:
    lock = msgspec.structs.replace(the_lock(make_checkout(tmp_path)), evidence_class=wanted)
    with pytest.raises(InputError, match=f"it can never give {wanted}") as refusal:
        require_class(lock, fixture_models.deepseek4(4, embedding=32))
    assert refusal.value.where == f"{lock.name}.toml: class"


def test_a_fixture_runs_under_a_lock_of_its_own_class(fixture_models: FixtureModels, tmp_path: Path) -> None:
    lock = msgspec.structs.replace(the_lock(make_checkout(tmp_path)), evidence_class="fixture")
    require_class(lock, fixture_models.deepseek4(4, embedding=32))


@pytest.mark.parametrize("claimed", REAL)
def test_evidence_about_a_fixture_that_claims_more_is_refused(tmp_path: Path, claimed: EvidenceClass) -> None:
    lock = msgspec.structs.replace(the_lock(make_checkout(tmp_path)), evidence_class=claimed)
    honest = msgspec.structs.replace(certification(lock), evidence_class=claimed)
    made = msgspec.structs.replace(honest, model=msgspec.structs.replace(honest.model, generator=GENERATOR))
    assert not [problem for problem in problems(honest, lock) if "fixture" in problem]
    assert [problem for problem in problems(made, lock) if f"can never give {claimed}" in problem]


def tiny_manifest(root: Path, model: LocalModel) -> Layout:
    """A checkout whose manifest of a published model names a fixture's file, which lies in its storage."""
    layout = make_models_checkout(root / "claiming")
    part = model.manifest.parts[0]
    (root / "storage" / "pretender").mkdir(parents=True)
    (root / "storage" / "pretender" / part.name).write_bytes(model.first_part.read_bytes())
    lines = (
        'schema = 1\nid = "pretender"\ntitle = "Real"\nlicense = "MIT"\narchitecture = "deepseek4"\nlayer_count = 4',
        f'quantisation = "F16"\ntokenizer_sha256 = "{model.manifest.tokenizer_sha256}"',
        f'[[parts]]\nname = "{part.name}"\nsize = {part.size}\nsha256 = "{part.sha256}"',
        '[[sources]]\nkind = "pypi-wheel"\ndistribution = "real"\nversion = "1"\nwheel = "real-1-py3-none-any.whl"\nsize = 1',
        f'sha256 = "{"0" * 64}"\nmembers = [{{ part = "{part.name}", path = "x" }}]',
    )
    (layout.model_manifests / "pretender.toml").write_text("\n".join(lines))
    return layout


def test_a_manifest_cannot_pass_a_fixture_for_a_real_model(fixture_models: FixtureModels, layout: Layout, tmp_path: Path) -> None:
    """The files say what made them, whatever a manifest says of them."""
    model = fixture_models.deepseek4(4, embedding=32)
    folder = model.first_part.parent
    assert take_inventory([read_header(model.first_part)]).generator == GENERATOR
    manifest = load_fixture_manifest(folder)
    assert manifest.synthesis is not None
    other = msgspec.structs.replace(manifest, synthesis=msgspec.structs.replace(manifest.synthesis, generator="deepseek4/99"))
    with pytest.raises(InputError, match="says 'deepseek4/99', and the model's own header 'deepseek4/1'"):
        open_set(layout, other, folder)
    claiming = tiny_manifest(tmp_path, model)
    with pytest.raises(InputError, match="says None, and the model's own header 'deepseek4/1'"):
        verified_model(claiming, "pretender", tmp_path / "storage")
