"""The build record: what it says of a moved checkout, a missing program, and a file that is no record."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dgrctl.errors import BuildError, InputError
from dgrctl.lanes.record import Binary, BuildRecord, Trees, load_record, record_path, save_record
from dgrctl.layout import Layout

DIGEST = "ab" * 32


def _record(layout: Layout, *programs: str) -> BuildRecord:
    binaries = {
        program: Binary(
            path=str(layout.builds / "folders" / program / "bin" / program),
            sha256=DIGEST,
            folder=str(layout.builds / "folders" / program),
            configuration=DIGEST,
            inputs=DIGEST,
            sources=DIGEST,
            options={"GGML_NATIVE": "OFF"},
            flags=["-O3"],
            compilers={},
            built_at="2026-11-29T14:00:00Z",
            build_seconds=1,
        )
        for program in programs
    }
    return BuildRecord(
        schema=1,
        lane="cpu",
        isa="x86-64-v3",
        pin="0c" * 20,
        stack_digest=DIGEST,
        trees=Trees(upstream="0d" * 20, patched="0e" * 20),
        tools={"cmake": "cmake version 3.25.1"},
        binaries=binaries,
    )


def test_nothing_built(tmp_path: Path) -> None:
    assert load_record(Layout(tmp_path), "cpu") is None


def test_saved_and_loaded(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    record = _record(layout, "dgr-worker", "dgr-reference")
    save_record(layout, record)
    assert load_record(layout, "cpu") == record
    assert record.worker == layout.builds / "folders/dgr-worker/bin/dgr-worker"
    assert record.reference.name == "dgr-reference"


def test_a_moved_checkout_keeps_its_record(tmp_path: Path) -> None:
    old, new = Layout(tmp_path / "old"), Layout(tmp_path / "new")
    save_record(old, _record(old, "dgr-worker"))
    assert str(tmp_path) not in record_path(old, "cpu").read_text()
    old.root.rename(new.root)
    loaded = load_record(new, "cpu")
    assert loaded is not None
    assert loaded.worker.is_relative_to(new.root)


def test_a_program_that_was_not_built(tmp_path: Path) -> None:
    record = _record(Layout(tmp_path), "dgr-worker")
    with pytest.raises(BuildError, match="dgr-reference was not built") as refused:
        _ = record.reference
    assert refused.value.remedy == "dgrctl build --lane cpu"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("pin", "main"),
        ("binaries", []),
        ("lane", None),
        ("unknown", 1),
        ("binaries", {"dgr-worker": {"path": "x", "sha256": "short"}}),
    ],
)
def test_a_file_that_is_no_record_is_refused_by_field(tmp_path: Path, field: str, value: object) -> None:
    layout = Layout(tmp_path)
    save_record(layout, _record(layout, "dgr-worker"))
    document = json.loads(record_path(layout, "cpu").read_text())
    document[field] = value
    record_path(layout, "cpu").write_text(json.dumps(document))
    with pytest.raises(InputError) as refused:
        load_record(layout, "cpu")
    assert field in str(refused.value.where)
    assert refused.value.remedy == "dgrctl build --lane cpu --force"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"schema": 1, "schema": 1}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    layout = Layout(tmp_path)
    record_path(layout, "cpu").parent.mkdir(parents=True)
    record_path(layout, "cpu").write_bytes(content)
    with pytest.raises(InputError):
        load_record(layout, "cpu")


def test_another_lanes_record_in_its_place(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    save_record(layout, msgspec.structs.replace(_record(layout), lane="cuda"))
    record_path(layout, "cuda").rename(record_path(layout, "cpu"))
    with pytest.raises(InputError, match="is of the lane cuda"):
        load_record(layout, "cpu")
