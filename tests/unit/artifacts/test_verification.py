"""A model on disk: every changed byte is found, completeness comes before hashing, and nothing passes by its size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_models import MODEL_ID, TinyModel, sha256, write_gguf

from dgrctl.artifacts.manifest import load_model_manifest
from dgrctl.artifacts.provision import provision, statuses, verified_model
from dgrctl.errors import FetchError, InputError, IntegrityError, StorageError


def test_a_good_model(tiny: TinyModel) -> None:
    tiny.put()
    model = verified_model(tiny.layout, MODEL_ID)
    assert model.first_part == tiny.stored
    assert model.set_digest == load_model_manifest(tiny.layout, MODEL_ID).set_digest
    assert (model.architecture, model.layer_count, model.context_length) == ("llama", 4, 256)
    whole = model.stage_bytes(0, 4)
    assert whole == sum(model.layer_bytes) + model.head_bytes + model.tail_bytes - model.tied_bytes
    # Cut in two, the tied embedding is held twice.
    assert model.stage_bytes(0, 2) + model.stage_bytes(2, 4) == whole + model.tied_bytes


def test_verifying_writes_nothing(tiny: TinyModel) -> None:
    tiny.put()
    before = sorted(path for path in tiny.layout.root.rglob("*"))
    verified_model(tiny.layout, MODEL_ID)
    statuses(tiny.layout)
    assert sorted(path for path in tiny.layout.root.rglob("*")) == before


def test_not_pulled(tiny: TinyModel) -> None:
    with pytest.raises(FetchError, match="has not been pulled") as caught:
        verified_model(tiny.layout, MODEL_ID)
    assert caught.value.remedy == f"dgrctl model pull {MODEL_ID}"


def test_the_remedy_names_the_storage_that_was_named(tiny: TinyModel, tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        verified_model(tiny.layout, MODEL_ID, tmp_path / "s")
    assert caught.value.remedy == f"dgrctl model pull {MODEL_ID} --storage {tmp_path / 's'}"


def test_every_changed_byte_is_found(tiny: TinyModel) -> None:
    tiny.put()
    for at in range(0, len(tiny.part), 97):
        changed = bytearray(tiny.part)
        changed[at] ^= 0x01
        tiny.stored.write_bytes(changed)
        with pytest.raises(IntegrityError, match="SHA-256") as caught:
            verified_model(tiny.layout, MODEL_ID)
        assert caught.value.where == str(tiny.stored)
        assert caught.value.remedy == f"dgrctl model pull {MODEL_ID} --repair"


@pytest.mark.parametrize("length", [0, 1, -1])
def test_another_size_is_found(tiny: TinyModel, length: int) -> None:
    tiny.put()
    tiny.stored.write_bytes(tiny.part[:length] if length <= 0 else tiny.part + b"x")
    with pytest.raises(IntegrityError, match=re.escape(f"instead of {len(tiny.part)}")):
        verified_model(tiny.layout, MODEL_ID)


def test_a_folder_or_link_in_place_of_a_part(tiny: TinyModel) -> None:
    tiny.put()
    tiny.stored.unlink()
    tiny.stored.symlink_to("/home/somebody/tiny.gguf")
    with pytest.raises(StorageError, match="not kept below /home"):
        verified_model(tiny.layout, MODEL_ID)
    tiny.stored.unlink()
    tiny.stored.mkdir()
    with pytest.raises(IntegrityError, match="not a regular file"):
        verified_model(tiny.layout, MODEL_ID)


def test_a_dangling_link_is_bad_and_not_missing(tiny: TinyModel) -> None:
    tiny.put()
    tiny.stored.unlink()
    tiny.stored.symlink_to(tiny.folder / "nothing")
    with pytest.raises(IntegrityError, match="not a regular file"):
        verified_model(tiny.layout, MODEL_ID)


def test_completeness_comes_first(tiny: TinyModel) -> None:
    """Of two parts one is missing and the other is bad: the missing one is reported."""
    text = tiny.manifest.read_text().replace("tiny.gguf", "tiny-00001-of-00002.gguf")
    second = '[[parts]]\nname = "tiny-00002-of-00002.gguf"\nsize = 3\nsha256 = "' + "0" * 64 + '"\n[[sources]]'
    member = ', { part = "tiny-00002-of-00002.gguf", path = "x" }]'
    tiny.manifest.write_text(text.replace("[[sources]]", second).replace("}]", "}" + member))
    tiny.folder.mkdir(parents=True)
    (tiny.folder / "tiny-00001-of-00002.gguf").write_bytes(b"wrong")
    with pytest.raises(IntegrityError, match="1 of the 2 parts") as caught:
        verified_model(tiny.layout, MODEL_ID)
    assert caught.value.where == str(tiny.folder / "tiny-00002-of-00002.gguf")
    assert caught.value.remedy == f"dgrctl model pull {MODEL_ID}"
    (tiny.folder / "tiny-00002-of-00002.gguf").write_bytes(b"bad")
    with pytest.raises(IntegrityError) as caught:
        verified_model(tiny.layout, MODEL_ID)
    assert len((caught.value.detail or "").splitlines()) == 2  # both bad parts are named


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("architecture", '"llama"', '"gemma3"'),
        ("layer_count", "layer_count = 4", "layer_count = 5"),
        ("quantisation", '"F32"', '"Q4_1"'),
        ("tokenizer_sha256", 'tokenizer_sha256 = "..', 'tokenizer_sha256 = "00'),
    ],
)
def test_a_manifest_that_says_something_else_than_the_model(tiny: TinyModel, field: str, old: str, new: str) -> None:
    tiny.put()
    tiny.manifest.write_text(re.sub(old, new, tiny.manifest.read_text(), count=1))
    with pytest.raises(InputError, match="the model's own header") as caught:
        verified_model(tiny.layout, MODEL_ID)
    assert caught.value.where == f"{tiny.manifest}: {field}"


def test_a_part_with_the_right_hash_that_is_not_gguf(tiny: TinyModel) -> None:
    tiny.put()
    tiny.stored.write_bytes(b"not a model")
    text = re.sub("size = .*\nsha256 = .*", f'size = 11\nsha256 = "{sha256(tiny.stored)}"', tiny.manifest.read_text(), count=1)
    tiny.manifest.write_text(text)
    with pytest.raises(InputError, match="does not begin with 'GGUF'") as caught:
        verified_model(tiny.layout, MODEL_ID)
    assert caught.value.where == str(tiny.stored)


def test_states_in_the_list(tiny: TinyModel) -> None:
    def state() -> str:
        (status,) = statuses(tiny.layout)
        return status.state

    assert state() == "absent"
    tiny.put()
    assert state() == "present"
    tiny.stored.write_bytes(b"x")
    assert state() == "incomplete"


def test_pull_reports_a_bad_part_and_leaves_it(tiny: TinyModel) -> None:
    tiny.put()
    write_gguf(tiny.stored, layers=3)
    before = tiny.stored.read_bytes()
    with pytest.raises(IntegrityError) as caught:
        provision(tiny.layout, MODEL_ID)
    assert caught.value.remedy == f"dgrctl model pull {MODEL_ID} --repair"
    assert tiny.stored.read_bytes() == before


def test_pull_with_nothing_to_do_removes_leftovers(tiny: TinyModel) -> None:
    tiny.put()
    (tiny.folder / f".{tiny.part_name}.partial").write_bytes(b"half")
    (tiny.folder / ".incoming" / "attempt-x").mkdir(parents=True)
    (tiny.folder / ".incoming" / "old.whl").write_bytes(b"old")
    assert provision(tiny.layout, MODEL_ID).brought == ()
    assert [path.name for path in tiny.folder.iterdir()] == [tiny.part_name]


def test_a_file_in_place_of_the_models_folder(tiny: TinyModel) -> None:
    tiny.layout.default_storage.mkdir(parents=True)
    tiny.folder.write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be made"):
        provision(tiny.layout, MODEL_ID)
