"""Builds of a small llama.cpp with the real tools: what comes out, what is refused, and what is said when it fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_build import SmallBuild, other_level

from dgrctl.errors import BuildError, InputError, IntegrityError, PatchError, ToolchainError
from dgrctl.lanes.build import build, build_tests, verified_build
from dgrctl.lanes.device import detect
from dgrctl.lanes.record import load_record, record_path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SmallBuild:
    """One built checkout for the tests of this module that leave it built."""
    checkout = SmallBuild(tmp_path_factory.mktemp("small"))
    checkout.build()
    return checkout


@pytest.fixture
def built(shared: SmallBuild) -> Iterator[SmallBuild]:
    """The shared checkout, put right again after a test that bends it."""
    yield shared
    for name, text in shared.own_sources().items():
        shared.write(name, text)
    shared.build(force=load_or_none(shared) is None)


def load_or_none(checkout: SmallBuild) -> object:
    try:
        return verified_build(checkout.layout, "cpu")
    except (BuildError, IntegrityError, InputError, ToolchainError):
        return None


def test_both_programs_state_what_they_were_built_from(shared: SmallBuild) -> None:
    record = verified_build(shared.layout, "cpu")
    isa = detect("cpu").isa
    assert (record.lane, record.isa, record.pin) == ("cpu", isa, shared.commit)
    assert shared.output("dgr-worker").startswith(f"{isa} {record.stack_digest} ")
    assert shared.output("dgr-reference").startswith(f"{isa} none ")
    for binary in record.binaries.values():
        assert binary.options["GGML_NATIVE"] == binary.options["GGML_OPENMP"] == "OFF"
        assert binary.compilers["CXX"].id in {"GNU", "Clang"}
        assert "-O3" in binary.flags
    assert str(shared.layout.root) not in record_path(shared.layout, "cpu").read_text()


def test_a_second_build_has_nothing_to_do_and_says_so(shared: SmallBuild) -> None:
    before = record_path(shared.layout, "cpu").read_bytes()
    done = shared.run_build("--json")
    assert done.returncode == 0
    assert "nothing to do: built and unchanged" in done.stderr
    assert done.stdout.startswith("{")
    assert record_path(shared.layout, "cpu").read_bytes() == before


def test_worker_and_reference_share_what_both_trees_have(shared: SmallBuild) -> None:
    """The reference is built first; all of the worker's llama.cpp comes out of the compiler's cache."""
    environment = shared.environment(CCACHE_DIR=str(shared.layout.ccache))
    told = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True, check=True, env=environment).stdout
    statistics = dict(line.split("\t") for line in told.splitlines())
    # ggml-cpu.c, ops.cpp and llama.cpp.
    assert int(statistics["direct_cache_hit"]) >= 3


def test_a_checkout_elsewhere_builds_the_same_bytes(shared: SmallBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its folder is called, with a cache of its own, and whatever the user's environment tells compilers."""
    for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS"):
        monkeypatch.setenv(name, "-DBENT -g")
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    other = SmallBuild(tmp_path, like=shared, name="a much longer name, with spaces")
    other.build()
    here, there = (verified_build(checkout.layout, "cpu").binaries for checkout in (shared, other))
    assert {name: binary.sha256 for name, binary in here.items()} == {name: binary.sha256 for name, binary in there.items()}
    assert shared.output("dgr-worker").split()[-1] == "source/worker/main.cpp"


def test_an_edited_source_is_built_and_until_then_refused(built: SmallBuild) -> None:
    built.write("worker/identity.cpp", 'const char* Identity() { return "edited"; }\n')
    with pytest.raises(BuildError, match="worker/ or proto/ changed") as refused:
        verified_build(built.layout, "cpu")
    assert refused.value.remedy == "dgrctl build --lane cpu"
    assert set(built.build().built) == {"dgr-worker", "dgr-reference"}
    assert built.output("dgr-worker").startswith("edited ")
    verified_build(built.layout, "cpu")


def test_a_changed_byte_in_a_program_is_refused_and_named(built: SmallBuild) -> None:
    for program in ("dgr-worker", "dgr-reference"):
        path = Path(verified_build(built.layout, "cpu").binaries[program].path)
        right = path.read_bytes()
        path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
        for check in (verified_build, build):
            with pytest.raises(IntegrityError, match="not the one that was built") as refused:
                check(built.layout, "cpu")
            assert refused.value.where == str(path)
            assert refused.value.remedy == "dgrctl build --lane cpu --force"
        path.write_bytes(right)
    path.write_bytes(b"")
    assert built.run_build("--force").returncode == 0
    verified_build(built.layout, "cpu")


def test_a_changed_program_is_not_taken_over_by_the_next_build(built: SmallBuild) -> None:
    """An edit that Ninja need not relink for does not launder it either."""
    path = verified_build(built.layout, "cpu").worker
    right = path.read_bytes()
    path.write_bytes(right + b"\0")
    built.write("worker/test.cpp", "int main() { return 1; }\n")
    built.build()
    assert path.read_bytes() == right


def test_a_program_that_is_gone(built: SmallBuild) -> None:
    verified_build(built.layout, "cpu").worker.unlink()
    with pytest.raises(BuildError, match="is gone"):
        verified_build(built.layout, "cpu")
    assert built.build().built == ("dgr-worker",)


def test_changed_trees_are_refused_and_named(built: SmallBuild) -> None:
    for tree, error in ((built.layout.pristine, IntegrityError), (built.layout.workspace, IntegrityError)):
        file = tree / "src" / "llama.cpp"
        before = file.read_text()
        file.write_text(f"{before}// changed\n")
        with pytest.raises(error) as refused:
            built.build()
        assert "src/llama.cpp" in f"{refused.value.what}{refused.value.where}"
        file.write_text(before)


def test_a_build_of_another_stack_is_refused(built: SmallBuild) -> None:
    built.write("patches/llama.cpp/0001-x.patch", "not in the lock")
    with pytest.raises(PatchError):
        verified_build(built.layout, "cpu")
    (built.layout.patches / "0001-x.patch").unlink()


def test_a_copied_checkout_builds_its_own_sources(shared: SmallBuild, tmp_path: Path) -> None:
    """Its build folders still name the old one's, which are there too."""
    shutil.copytree(shared.layout.root, tmp_path / "checkout", symlinks=True)
    copy = SmallBuild.at(tmp_path)
    verified_build(copy.layout, "cpu")
    copy.write("worker/identity.cpp", 'const char* Identity() { return "copy"; }\n')
    copy.build("reference")
    assert copy.output("dgr-reference").startswith("copy ")
    verified_build(shared.layout, "cpu")


def test_one_role_alone(tmp_path: Path) -> None:
    checkout = SmallBuild(tmp_path)
    assert checkout.build("reference").built == ("dgr-reference",)
    with pytest.raises(BuildError, match="was not built yet"):
        verified_build(checkout.layout, "cpu")
    assert checkout.build().built == ("dgr-worker",)
    before = verified_build(checkout.layout, "cpu").binaries["dgr-reference"]
    assert checkout.build("worker", force=True).built == ("dgr-worker",)
    assert verified_build(checkout.layout, "cpu").binaries["dgr-reference"] == before


def test_nothing_built_says_how(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="the lane cpu was not built yet") as refused:
        verified_build(SmallBuild(tmp_path).layout, "cpu")
    assert refused.value.remedy == "dgrctl build --lane cpu"


def test_another_level_is_another_lane_identity(built: SmallBuild) -> None:
    record = built.build(isa=other_level()).record
    assert record.isa == other_level()
    assert len(list(built.layout.builds.glob("folders/*-worker-*"))) == 2
    assert not [flag for flag in record.binaries["dgr-worker"].flags if flag.startswith("-mavx")]


def test_a_damaged_record_is_refused_and_forced_over(built: SmallBuild) -> None:
    record_path(built.layout, "cpu").write_bytes(b"{")
    for check in (verified_build, build):
        with pytest.raises(InputError):
            check(built.layout, "cpu")
    built.build(force=True)
    verified_build(built.layout, "cpu")


def test_other_lanes_are_refused_with_their_reason(shared: SmallBuild) -> None:
    with pytest.raises(ToolchainError, match=r"the lane metal cannot be built: .*this version builds only the cpu lane"):
        build(shared.layout, "metal")


def test_a_missing_compiler_names_its_package(shared: SmallBuild) -> None:
    done = shared.run_build(CXX="/nowhere/c++")
    assert done.returncode == ToolchainError.exit_code
    assert "CXX=/nowhere/c++ is not on PATH" in done.stderr
    assert "apt-get install g++" in done.stderr


def test_unit_tests_are_built_beside_the_worker(built: SmallBuild) -> None:
    program = build_tests(built.layout, "cpu")
    assert program.parent == verified_build(built.layout, "cpu").worker.parent
    assert subprocess.run([program], check=False).returncode == 0


def test_a_compile_error_shows_the_command_and_the_message(built: SmallBuild) -> None:
    built.write("worker/identity.cpp", "nonsense\n")
    done = built.run_build()
    assert done.returncode == BuildError.exit_code
    assert re.search(r"error: building CMakeFiles/dgr-reference.dir/identity.cpp.o failed", done.stderr)
    assert "-ffile-prefix-map" in done.stderr
    assert "'nonsense' does not name a type" in done.stderr
    log = re.search(r"where: (\S+build\.log)", done.stderr)
    assert log is not None
    assert "nonsense" in Path(log.group(1)).read_text()


def test_a_cmake_error_shows_what_it_said(tmp_path: Path) -> None:
    checkout = SmallBuild(tmp_path)
    checkout.write("worker/CMakeLists.txt", 'cmake_minimum_required(VERSION 3.25)\nmessage(FATAL_ERROR "no gRPC here")\n')
    with pytest.raises(BuildError, match="CMake could not configure") as failed:
        checkout.build()
    assert "no gRPC here" in str(failed.value.detail)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('option(GGML_OPENMP "" ON)', 'set(GGML_OPENMP ON CACHE BOOL "" FORCE)', "option GGML_OPENMP is ON"),
        ('option(GGML_NATIVE "" ON)', 'set(GGML_NATIVE ON CACHE BOOL "" FORCE)', "option GGML_NATIVE is ON"),
        ('set(ARCH_FLAGS "")', "set(ARCH_FLAGS -march=native)", "-march=native"),
        ('set(ARCH_FLAGS "")', "set(ARCH_FLAGS -DGGML_USE_OPENMP)", "OpenMP"),
    ],
)
def test_a_lane_that_came_out_as_something_else(tmp_path: Path, old: str, new: str, told: str) -> None:
    original = SmallBuild.upstream_file("ggml/CMakeLists.txt")
    assert old in original
    checkout = SmallBuild(tmp_path, {"ggml/CMakeLists.txt": original.replace(old, new)})
    with pytest.raises(BuildError, match="came out as something else") as refused:
        checkout.build()
    assert told in refused.value.what
    assert load_record(checkout.layout, "cpu") is None
