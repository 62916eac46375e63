"""A bump changes nothing unless it is committed, takes all or nothing, and leaves a conflict that can be gone on with."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import source_package
from upstream_checkout import FILES, FIRST, SECOND, THIRD, Checkout, message

from dgrctl.errors import BuildError, DgrError, FetchError, InputError, PatchError, StorageError, UsageError
from dgrctl.layout import Layout
from dgrctl.report.patch_text import bump_rows
from dgrctl.upstream.bump import abort, bump, exit_code, resume
from dgrctl.upstream.bump_report import PatchLine, Proof
from dgrctl.upstream.export import export
from dgrctl.upstream.fetch import fetch
from dgrctl.upstream.git import Repository, run_git
from dgrctl.upstream.lint import lint
from dgrctl.upstream.manifest import SdistTransport, load_manifest
from dgrctl.upstream.series import LOCK_NAME, load_lock
from dgrctl.upstream.stack import apply, verify_workspace

CORE = FILES["src/llama.cpp"]
MOVED = {"src/llama.cpp": b"// x\n" * 7 + CORE}
CONFLICT = {"src/llama.cpp": CORE.replace(b"line_30(", b"line_x(")}


def clone_of(checkout: Checkout) -> Repository:
    return Repository(checkout.layout.state / "bump" / "llama.cpp", raises=DgrError)


def resolve(checkout: Checkout, content: bytes = CORE.replace(b"line_30(", b"line_x_thirty(") + b"// new\n") -> None:
    """As a person does it: edit and stage."""
    (clone_of(checkout).folder / "src" / "llama.cpp").write_bytes(content)
    clone_of(checkout).run("add", "src/llama.cpp")


def follow(checkout: Checkout) -> None:
    """What the report says to do next."""
    fetch(checkout.layout)
    apply(checkout.layout)
    assert verify_workspace(checkout.layout).applied
    assert lint(checkout.layout).findings == ()
    assert export(checkout.layout).written == ()


class TestRehearsal:
    """Without ``commit``."""

    def test_nothing_changes_and_nothing_is_left(self, stacked: Checkout) -> None:
        before = stacked.everything()
        report = bump(stacked.layout, to=stacked.advance(MOVED))
        assert [line.outcome for line in report.patches] == ["offset", "offset", "clean"]
        assert (report.applies, report.committed, exit_code(report)) == (True, False, 0)
        assert stacked.everything() == before

    def test_the_lock_it_would_write_is_told(self, stacked: Checkout) -> None:
        commit = stacked.advance(MOVED)
        lock = bump(stacked.layout, to=commit).lock
        assert lock is not None
        assert (lock.pin, lock.lines.core.changed) == (commit, 3)

    def test_upstream_commits_that_touched_the_same_files_are_named(self, stacked: Checkout) -> None:
        stacked.advance({"README.md": b"x"}, "Readme only")
        first = stacked.advance(MOVED, "Move the core down")
        report = bump(stacked.layout, to=stacked.advance({"src/models/llama.cpp": b"// y\n" * 10}, "Touch llama"))
        assert report.history
        named = [[each.subject for each in line.upstream_commits or ()] for line in report.patches]
        assert named == [["Move the core down"], ["Move the core down"], ["Touch llama"]]
        assert report.patches[0].upstream_commits is not None
        assert report.patches[0].upstream_commits[0].commit == first

    def test_without_history_it_says_so(self, stacked: Checkout, tmp_path: Path) -> None:
        stacked.advance(MOVED)
        squashed = tmp_path / "squashed"
        run_git("clone", "--quiet", "--depth=1", f"file://{stacked.upstream.folder}", str(squashed), raises=DgrError)
        report = bump(stacked.layout, to="HEAD", source=squashed)
        assert report.applies
        assert not report.history
        assert report.patches[0].upstream_commits is None

    def test_an_older_commit_can_be_tried_as_well(self, stacked: Checkout) -> None:
        report = bump(stacked.layout, to=stacked.upstream.text("rev-parse", "HEAD~1"))
        assert [line.outcome for line in report.patches] == ["target gone"] * 3
        assert not report.history

    @pytest.mark.parametrize("kind", ["bundle", "bare", "branch", "tag"])
    def test_sources(self, stacked: Checkout, tmp_path: Path, kind: str) -> None:
        commit = stacked.advance(MOVED)
        source, to = stacked.upstream.folder, commit
        if kind == "bundle":
            source = tmp_path / "x.bundle"
            stacked.upstream.run("bundle", "create", "--quiet", str(source), "HEAD")
        elif kind == "bare":
            source = tmp_path / "bare"
            run_git("clone", "--quiet", "--bare", str(stacked.upstream.folder), str(source), raises=DgrError)
        elif kind == "branch":
            stacked.upstream.run("branch", "topic")
            stacked.upstream.run("checkout", "--quiet", "--detach", "HEAD~1")
            to = "topic"
        else:
            stacked.upstream.run("tag", "v2")
            stacked.advance({"README.md": b"later"})
            to = "v2"
        assert bump(stacked.layout, to=to, source=source).target.commit == commit
        if kind in ("branch", "tag"):
            assert bump(stacked.layout, to=to).target.commit == commit

    @pytest.mark.parametrize(
        ("options", "refusal"),
        [
            ({"to": "no-such-branch"}, FetchError),
            ({"to": "0" * 40, "source": "."}, FetchError),
            ({"to": "-x", "source": "."}, InputError),
            ({"to": "--upload-pack=x"}, InputError),
            ({"to": "HEAD", "source": "nowhere"}, FetchError),
            ({"to": "HEAD", "source": ".", "transport": "git"}, UsageError),
            ({"to": "HEAD", "transport": "sdist"}, UsageError),
        ],
    )
    def test_refusals_leave_nothing(self, stacked: Checkout, options: dict[str, str], refusal: type[DgrError]) -> None:
        before = stacked.everything()
        source = stacked.upstream.folder / options.pop("source") if "source" in options else None
        with pytest.raises(refusal) as caught:
            bump(stacked.layout, source=source, **options)  # type: ignore[arg-type]
        assert caught.value.remedy
        assert stacked.everything() == before


class TestCommit:
    """With ``commit``."""

    def test_pin_patches_and_lock_go_together(self, stacked: Checkout) -> None:
        commit = stacked.advance(MOVED)
        report = bump(stacked.layout, to=commit, commit=True)
        assert (report.committed, report.next_commands) == (True, ("dgrctl fetch", "dgrctl patch"))
        assert (load_manifest(stacked.layout).commit, load_lock(stacked.layout).pin) == (commit, commit)
        assert not (stacked.layout.state / "bump").exists()
        follow(stacked)
        assert (stacked.layout.workspace / "src" / "llama.cpp").read_bytes().startswith(b"// x\n")

    def test_a_path_is_named_to_fetch_from(self, stacked: Checkout) -> None:
        stacked.advance(MOVED)
        report = bump(stacked.layout, to="HEAD", source=stacked.upstream.folder, commit=True)
        assert report.next_commands[0] == f"dgrctl fetch --from {stacked.upstream.folder}"

    def test_a_package_that_brings_the_target_takes_the_place_of_the_pins(self, stacked: Checkout, tmp_path: Path) -> None:
        """The same source package in another version, as pip downloads it."""
        old = source_package.write_package(tmp_path / "index", stacked.upstream.folder)
        stacked.write_manifest(f"{stacked.git_transport()}\n{source_package.transport(old)}")
        commit = stacked.advance(MOVED)
        new = source_package.write_package(tmp_path / "new", stacked.upstream.folder)
        new = new.rename(new.with_name(source_package.FILENAME.replace(source_package.VERSION, "2.0")))
        report = bump(stacked.layout, to=commit, source=new, commit=True)
        assert (report.committed, report.next_commands[0]) == (True, "dgrctl fetch")
        (package,) = [each for each in load_manifest(stacked.layout).transports if isinstance(each, SdistTransport)]
        assert (package.version, package.sha256) == ("2.0", hashlib.sha256(new.read_bytes()).hexdigest())
        follow(stacked)

    def test_the_manifests_own_package_holds_the_pin(self, stacked: Checkout, tmp_path: Path) -> None:
        """A rehearsal without any network."""
        package = source_package.write_package(stacked.layout.downloads / "upstream", stacked.upstream.folder)
        stacked.write_manifest(source_package.transport(package))
        before = stacked.everything()
        report = bump(stacked.layout, to="HEAD", transport="sdist")
        assert [line.outcome for line in report.patches] == ["clean"] * 3
        assert stacked.everything() == before

    def test_what_upstream_has_is_dropped(self, stacked: Checkout) -> None:
        commit = stacked.advance({"src/llama.cpp": CORE.replace(b"line_30(", b"line_thirty(")})
        report = bump(stacked.layout, to=commit, commit=True)
        assert report.patches[1].outcome == "already upstream"
        assert sorted(stacked.patch_files()) == [FIRST, "0002-Llama-third.patch", LOCK_NAME]
        follow(stacked)

    def test_to_the_pin_itself_changes_nothing(self, stacked: Checkout) -> None:
        before = stacked.everything()
        assert bump(stacked.layout, to=stacked.commit, commit=True).committed
        assert stacked.everything() == before

    def test_a_proof_that_fails_is_told_and_nothing_is_written(self, stacked: Checkout) -> None:
        before, commit = stacked.everything(), stacked.advance(MOVED)

        def fail(candidate: Layout) -> Proof:
            assert verify_workspace(candidate).applied
            raise BuildError("it does not compile", where="x.cpp", detail="line 1")

        report = bump(stacked.layout, to=commit, commit=True, prove=fail)
        assert report.proof is not None
        assert "does not compile (x.cpp)" in report.proof.text
        assert (report.committed, exit_code(report)) == (False, BuildError.exit_code)
        report = bump(stacked.layout, to=commit, commit=True, prove=lambda _: Proof(passed=False, text="3 logits differ"))
        assert (report.committed, exit_code(report)) == (False, BuildError.exit_code)
        assert stacked.everything() == before
        assert bump(stacked.layout, to=commit, commit=True, prove=lambda _: Proof(passed=True, text="")).committed

    def test_work_in_the_workspace_is_not_stranded(self, stacked: Checkout) -> None:
        stacked.commit_change("Core: mine")
        before = stacked.everything()
        with pytest.raises(PatchError, match="in no patch"):
            bump(stacked.layout, to=stacked.advance(MOVED), commit=True)
        assert stacked.everything() == before

    def test_an_export_meanwhile_is_not_overwritten(self, stacked: Checkout) -> None:
        def meanwhile(candidate: Layout) -> Proof:
            del candidate
            stacked.commit_change(message("Core: mine", "src/llama.cpp"), old=b"line_5(", new=b"line_five(")
            export(stacked.layout)
            return Proof(passed=True, text="")

        with pytest.raises(PatchError, match="changed while"):
            bump(stacked.layout, to=stacked.advance(MOVED), commit=True, prove=meanwhile)
        assert "0004-Core-mine.patch" in stacked.patch_files()

    def test_over_the_budget_there(self, stacked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that upstream renamed into an architecture's."""
        stacked.commit_change(message("Core: much", "src/dos.txt"), "src/dos.txt", new=b"x\r\n" * 9)
        export(stacked.layout)
        before = stacked.everything()
        commit = stacked.advance({"src/dos.txt": None, "src/models/dos.cpp": FILES["src/dos.txt"]})
        report = bump(stacked.layout, to=commit, commit=True)
        assert report.patches[-1].outcome == "merged three-way"
        assert report.problems == ("dos: 9 of 6",)
        assert (report.committed, exit_code(report)) == (False, PatchError.exit_code)
        assert stacked.everything() == before

    def test_full_disk_leaves_the_old_files(self, stacked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        before = {**stacked.patch_files(), "pin": stacked.layout.upstream_manifest.read_bytes()}

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageError):
            bump(stacked.layout, to=stacked.advance(MOVED), commit=True)
        assert {**stacked.patch_files(), "pin": stacked.layout.upstream_manifest.read_bytes()} == before


class TestConflict:
    """What waits for a person."""

    @pytest.fixture
    def waiting(self, stacked: Checkout) -> Checkout:
        """A conflict in the second of three patches."""
        report = bump(stacked.layout, to=stacked.advance(CONFLICT))
        assert report.worktree == str(clone_of(stacked).folder)
        assert "dgrctl patch bump --continue" in report.next_commands
        return stacked

    def test_the_rest_is_told_too(self, stacked: Checkout) -> None:
        report = bump(stacked.layout, to=stacked.advance(CONFLICT))
        assert [(line.outcome, line.cause) for line in report.patches] == [
            ("clean", None),
            ("conflict", "first"),
            ("clean", None),
        ]
        assert exit_code(report) == PatchError.exit_code

    def test_continued_and_committed(self, waiting: Checkout) -> None:
        resolve(waiting)
        report = resume(waiting.layout, commit=True)
        assert [line.outcome for line in report.patches] == ["clean", "resolved", "clean"]
        assert report.committed
        follow(waiting)
        assert b"line_x_thirty(" in (waiting.layout.workspace / "src" / "llama.cpp").read_bytes()

    def test_continued_first_and_committed_later(self, waiting: Checkout) -> None:
        resolve(waiting)
        report = resume(waiting.layout)
        assert report.next_commands[0] == "dgrctl patch bump --continue --commit"
        assert resume(waiting.layout, commit=True).committed
        follow(waiting)

    def test_a_commit_of_ones_own_is_taken_with_its_message(self, waiting: Checkout) -> None:
        resolve(waiting)
        clone_of(waiting).run("commit", "--quiet", "-m", message("Core: reworded", "src/llama.cpp"))
        assert resume(waiting.layout, commit=True).committed
        assert "0002-Core-reworded.patch" in waiting.patch_files()
        follow(waiting)

    def test_dropped(self, waiting: Checkout) -> None:
        report = resume(waiting.layout, drop=True, commit=True)
        assert [line.outcome for line in report.patches] == ["clean", "dropped", "clean"]
        assert sorted(waiting.patch_files()) == [FIRST, "0002-Llama-third.patch", LOCK_NAME]
        follow(waiting)

    def test_one_conflict_after_another(self, stacked: Checkout) -> None:
        bump(stacked.layout, to=stacked.advance(CONFLICT | {"src/models/llama.cpp": None}))
        resolve(stacked)
        report = resume(stacked.layout, commit=True)
        assert [line.outcome for line in report.patches] == ["clean", "resolved", "target gone"]
        assert not report.committed
        report = resume(stacked.layout, drop=True, commit=True)
        assert [line.outcome for line in report.patches] == ["clean", "resolved", "dropped"]
        follow(stacked)

    @pytest.mark.parametrize(
        ("do", "refusal"),
        [
            (lambda c: None, "not resolved"),
            (lambda c: clone_of(c).run("add", "src/llama.cpp"), "conflict markers"),
            (lambda c: (resolve(c), (clone_of(c).folder / "README.md").write_text("x")), "not staged"),
            (lambda c: (resolve(c), (clone_of(c).folder / "new.log").write_text("ignored")), "not staged"),
            (lambda c: resolve(c, CONFLICT["src/llama.cpp"] + b"// new\n"), "nothing is left"),
            (
                lambda c: (
                    resolve(c),
                    clone_of(c).run("commit", "--quiet", "-m", "one"),
                    (clone_of(c).folder / "README.md").write_text("x"),
                    clone_of(c).run("commit", "--quiet", "-a", "-m", "two"),
                ),
                "one commit",
            ),
        ],
    )
    def test_half_a_resolution_is_refused_and_kept(
        self, waiting: Checkout, do: Callable[[Checkout], object], refusal: str
    ) -> None:
        do(waiting)
        before = waiting.everything()
        with pytest.raises(PatchError, match=refusal) as caught:
            resume(waiting.layout, commit=True)
        assert "--abort" in str(caught.value.remedy)
        # git refreshes its index; what counts is what a person wrote.
        index = ".dgr/bump/llama.cpp/.git/index"
        assert {k: v for k, v in waiting.everything().items() if k != index and "/objects/" not in k} == {
            k: v for k, v in before.items() if k != index and "/objects/" not in k
        }

    def test_abort_restores_what_was_there(self, stacked: Checkout) -> None:
        before = stacked.everything()
        bump(stacked.layout, to=stacked.advance(CONFLICT), commit=True)
        assert stacked.everything() != before
        resolve(stacked)
        assert abort(stacked.layout)
        assert stacked.everything() == before
        assert not abort(stacked.layout)

    def test_a_new_bump_replaces_one_that_nobody_touched_and_no_other(self, waiting: Checkout) -> None:
        assert bump(waiting.layout, to=waiting.commit).worktree is not None
        resolve(waiting)
        with pytest.raises(PatchError, match="work of yours"):
            bump(waiting.layout, to=waiting.commit)
        resume(waiting.layout)
        with pytest.raises(PatchError, match="work of yours"):
            bump(waiting.layout, to=waiting.commit)

    def test_patches_that_changed_meanwhile(self, waiting: Checkout) -> None:
        resolve(waiting)
        waiting.commit_change("Core: fourth", old=b"line_5(", new=b"line_five(")
        export(waiting.layout)
        with pytest.raises(PatchError, match="changed since"):
            resume(waiting.layout)

    @pytest.mark.parametrize("text", [b"{}", b"[", b"\xff"])
    def test_a_damaged_memory(self, waiting: Checkout, text: bytes) -> None:
        (waiting.layout.state / "bump" / "state.json").write_bytes(text)
        commands: tuple[Callable[[], object], ...] = (
            lambda: resume(waiting.layout),
            lambda: bump(waiting.layout, to=waiting.commit),
        )
        for command in commands:
            with pytest.raises(InputError) as caught:
                command()
            assert caught.value.remedy == "dgrctl patch bump --abort"
        assert abort(waiting.layout)

    def test_nothing_to_continue(self, stacked: Checkout) -> None:
        with pytest.raises(PatchError, match="no bump is under way"):
            resume(stacked.layout)


class TestCommand:
    """``dgrctl patch bump`` as people and machines see it."""

    def test_table_and_next_commands(self, stacked: Checkout) -> None:
        done = stacked.run("patch", "bump", "--to", stacked.advance(CONFLICT, "Break it"), "--no-build")
        assert done.returncode == PatchError.exit_code
        rows = [line.split() for line in done.stdout.splitlines()]
        assert [row[0] for row in rows] == ["PATCH", *(name.removesuffix(".patch") for name in (FIRST, SECOND, THIRD))]
        assert rows[2][1:3] == ["conflict", "first"]
        assert "Break it" in done.stderr
        assert "next: dgrctl patch bump --continue" in done.stderr
        assert stacked.run("patch", "bump", "--abort").returncode == 0

    def test_a_table_row_stays_short(self) -> None:
        line = PatchLine(name=THIRD, outcome="conflict", cause="follows", follows=(FIRST, SECOND), conflicts=tuple("abcdefg"))
        assert bump_rows([line]) == [
            ("0003-Llama-third", "conflict", "follows", "?", "because of 0001, 0002: a, b, c, d and 3 more")
        ]

    def test_json_and_continue(self, stacked: Checkout) -> None:
        stacked.run("patch", "bump", "--to", stacked.advance(CONFLICT), "--no-build")
        resolve(stacked)
        done = stacked.run("patch", "bump", "--continue", "--commit", "--no-build", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["committed"], report["patches"][1]["outcome"]) == (True, "resolved")
        for command in report["next_commands"]:
            assert stacked.run(*command.split()[1:]).returncode == 0
        assert verify_workspace(stacked.layout).applied

    def test_command_that_would_commit_is_printed(self, stacked: Checkout) -> None:
        done = stacked.run("patch", "bump", "--to", stacked.advance(MOVED), "--no-build", "--json")
        (command,) = json.loads(done.stdout)["next_commands"]
        assert stacked.run(*command.split()[1:], "--no-build").returncode == 0
        follow(stacked)

    @pytest.mark.parametrize(
        "words",
        [
            (),
            ("--to", "x", "--abort"),
            ("--continue", "--drop"),
            ("--abort", "--commit"),
            ("--bisect", "a..b", "--commit"),
            ("--continue", "--from", "x"),
        ],
    )
    def test_usage(self, stacked: Checkout, words: tuple[str, ...]) -> None:
        done: subprocess.CompletedProcess[str] = stacked.run("patch", "bump", *words)
        assert done.returncode == UsageError.exit_code
