"""``dgrctl arch``: certifies architectures and keeps the roster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dgrctl.certify.architectures.classify import ModelOutcome, classify
from dgrctl.certify.architectures.lattice import check_model
from dgrctl.certify.architectures.synthesis import architecture_names, synthesise
from dgrctl.certify.architectures.upstream_test import UPSTREAM_TEST, upstream_test
from dgrctl.certify.inputs import changed_inputs
from dgrctl.console import note, progress
from dgrctl.errors import DgrError, InputError
from dgrctl.files import write_atomic
from dgrctl.lanes.build import build_extra, held_build, verified_build
from dgrctl.lanes.record import BuildRecord
from dgrctl.layout import Layout
from dgrctl.nearest import suggest
from dgrctl.recipes.architectures import Architecture, Roster, load_roster, save_roster
from dgrctl.report.pages import architectures_page
from dgrctl.statelock import state_lock

LANE = "cpu"
# With more layers, and as upstream has it; see worker/cmake/upstream_archs.cmake.
GENERATORS = ("dgr-synth", UPSTREAM_TEST)
# What the reference says of a model without memory; see worker/reference/whole_model.cpp.
_NO_STATE = "keeps no state between calls"


def check(layout: Layout, names: Sequence[str]) -> list[Architecture]:
    """Runs the lattice of the architectures ``names``, all of the pin if there are none; changes no file.

    Raises:
        InputError: the pin knows no such architecture.
        BuildError: the CPU lane was not built, or the generator cannot be.
        StorageError: the disk is full.
        CertificationVoid: the programs were changed meanwhile.
    """
    known = _known(layout, names)
    with state_lock(layout, "certify"):
        return _check(layout, list(names) or known)[1]


def certify(layout: Layout, names: Sequence[str]) -> Roster:
    """Like :func:`check`, and enters the rows into the roster; a roster of another pin or stack is begun anew.

    Without names it runs :func:`upstream_test` first.

    Raises:
        DgrError: as :func:`check` and :func:`upstream_test`; the roster is unchanged.
    """
    known = _known(layout, names)
    with state_lock(layout, "certify"):
        verified_build(layout, LANE)  # a lane that was not built is refused before anything else
        if not names:
            note(f"upstream's own test on the patched tree: {upstream_test(layout, LANE)}")
        build, found = _check(layout, list(names) or known)
        return _enter(layout, build, found, names)


def page_path(layout: Layout) -> Path:
    """The roster as a page of the documentation."""
    return layout.root / "docs" / "architectures.md"


def _known(layout: Layout, names: Sequence[str]) -> list[str]:
    """All architectures of the pin, once it is sure that they hold ``names``."""
    known = architecture_names(layout)
    for name in names:
        if name not in known:
            raise InputError(
                f"the pin knows no architecture {name!r}",
                where="NAME",
                remedy=suggest(name, known, "dgrctl arch list names all of them"),
            )
    return known


def _check(layout: Layout, names: Sequence[str]) -> tuple[BuildRecord, list[Architecture]]:
    """The programs that ran, which nobody could build anew meanwhile, and a row for each architecture."""
    verified_build(layout, LANE)
    generators = build_extra(layout, LANE, "reference", GENERATORS, title="Building upstream's generator of small models")
    rows = []
    with held_build(layout, LANE), progress(f"Certifying {len(names)} architecture(s)", total=len(names)) as update:
        build = verified_build(layout, LANE)
        for index, name in enumerate(names):
            made = synthesise(layout, generators, name)
            rows.append(classify(name, [_outcome(layout, build, path) for path in made.models], made.problem))
            update(index + 1, None)
        if verified_build(layout, LANE) != build:
            raise changed_inputs("the programs are others than when the run began")
    return build, rows


def _enter(layout: Layout, build: BuildRecord, found: Sequence[Architecture], names: Sequence[str]) -> Roster:
    """Writes the roster and its page."""
    rows = {row.name: row for row in found}
    roster = load_roster(layout)
    if (roster.pin, roster.stack_digest) == (build.pin, build.stack_digest):
        rows = {row.name: row for row in roster.architectures} | rows
    elif names:
        note("the roster was of another patch stack: it now holds nothing but the architectures named")
    ordered = tuple(row for _name, row in sorted(rows.items()))
    fresh = Roster(schema=1, pin=build.pin, stack_digest=build.stack_digest, architectures=ordered)
    save_roster(layout, fresh)
    write_atomic(page_path(layout), architectures_page(fresh).encode())
    return fresh


def _outcome(layout: Layout, build: BuildRecord, path: Path) -> ModelOutcome:
    try:
        return ModelOutcome(path.stem, check_model(layout, build, path))
    except DgrError as error:
        return ModelOutcome(path.stem, problem=error.what.replace(str(path), path.name), decoder=_NO_STATE not in error.what)
