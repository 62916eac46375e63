"""Patch files: one exact form, counted rightly, everything else refused as a PatchError."""

from __future__ import annotations

import random

import pytest

from dgrctl.errors import PatchError
from dgrctl.upstream.patchfile import FileChange, Patch, file_name, normalize_message, parse_patch

A, B, NONE = "a" * 40, "b" * 40, "0" * 40

# The second hunk removes a line "-- a/x" and adds "++ b/x": shown, they look like the head of a file.
DIFF = f"""diff --git a/src/llama.cpp b/src/llama.cpp
index {A}..{B} 100644
--- a/src/llama.cpp
+++ b/src/llama.cpp
@@ -1,3 +1,4 @@ int main()
 one
+two
 three
 four
@@ -10,2 +11,2 @@
 ten
--- a/x
+++ b/x
diff --git a/src/new.h b/src/new.h
new file mode 100644
index {NONE}..{B}
--- /dev/null
+++ b/src/new.h
@@ -0,0 +1 @@
+diff --git a/no b/no
\\ No newline at end of file
""".encode()

PATCH = Patch("Keep only the owned layers\n\nWhy: a stage holds a range.\n", DIFF)


def test_round_trip() -> None:
    assert parse_patch(PATCH.render(), "p") == PATCH
    assert parse_patch(Patch("Subject alone\n", DIFF).render(), "p") == Patch("Subject alone\n", DIFF)


def test_lines_that_look_like_headers_are_counted_as_lines() -> None:
    assert PATCH.changes() == (FileChange("src/llama.cpp", (A, B), 2, 1), FileChange("src/new.h", (NONE, B), 1, 0))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("  Subject \n", "Subject\n"),
        ("Two\nlines\n\nText  \n\n\n", "Two lines\n\nText\n"),
        ("S\r\n\r\nT\r\n", "S\n\nT\n"),
        ("\n\nS\n\n\n\nT\n\nU", "S\n\nT\n\nU\n"),
    ],
)
def test_messages_have_one_form(message: str, expected: str) -> None:
    assert normalize_message(message) == expected
    assert normalize_message(expected) == expected


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Keep only the owned layers", "0007-Keep-only-the-owned-layers.patch"),
        ("llama: a/b..c (d)", "0007-llama-a-b.c-d.patch"),
        ("Größe", "0007-Gr-e.patch"),
        ("层", "0007-patch.patch"),
        ("x" * 80, f"0007-{'x' * 52}.patch"),
    ],
)
def test_file_names(subject: str, expected: str) -> None:
    assert file_name(7, f"{subject}\n\ntext\n") == expected


@pytest.mark.parametrize("line", ["---", "--- x", "diff -u a b", "Index: x"])
def test_message_that_git_am_would_cut_short_is_refused(line: str) -> None:
    with pytest.raises(PatchError, match="would end it"):
        Patch(f"Subject\n\ntext\n{line}\nmore\n", DIFF).render()


@pytest.mark.parametrize("patch", [Patch("\n", DIFF), Patch("a\rb\n", DIFF), Patch("Subject\n", b"")])
def test_patch_without_subject_or_change_is_refused(patch: Patch) -> None:
    with pytest.raises(PatchError):
        patch.render()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"From 000", b"From 111"),
        (b"DGR patch stack", b"Somebody"),
        (b"Date: Thu", b"Date: Fri"),
        (b"[PATCH]", b"[PATCH 1/2]"),
        (b"\n---\n\n", b"\n---\n 1 file changed\n\n"),
        (b"holds a range.\n", b"holds a range. \n"),
        (b"Why", b"\xff"),
        (b"+two\n", b""),
        (b" four\n", b" four\n five\n"),
        (b"b/src/llama.cpp\n", b"b/src/other.cpp\n"),
        (f"index {A}..{B} 100644\n".encode(), b""),
        (f"index {A}..{B} 100644\n".encode(), b"index aaaa..bbbb 100644\n"),
        (f"index {A}..{B} 100644\n".encode(), b"GIT binary patch\n"),
        (b"\\ No newline at end of file\n", b"\\ No newline at end of file"),
        (b"\\ No newline at end of file\n", b"\\ No newline at end of file\ntrailing\n"),
    ],
)
def test_any_other_form_is_refused(old: bytes, new: bytes) -> None:
    data = PATCH.render()
    assert data.count(old) >= 1
    with pytest.raises(PatchError) as caught:
        parse_patch(data.replace(old, new, 1), "0001-x.patch")
    assert caught.value.where == "0001-x.patch"
    assert caught.value.remedy


def test_truncated_at_any_byte_is_refused_unless_whole_lines_or_hunks_are_missing() -> None:
    """Those are found by the patch's hash and by the blobs that it must give."""
    data = PATCH.render()
    for length in range(len(data)):
        try:
            patch = parse_patch(data[:length], "p")
        except PatchError:
            continue
        assert patch.render() == data[:length]
        assert data[:length].endswith(b"\n")


def test_damaged_bytes_raise_nothing_but_patch_errors() -> None:
    data = PATCH.render()
    generator = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            patch = parse_patch(bytes(damaged), "p")
        except PatchError:
            continue
        assert patch.render() == bytes(damaged)
