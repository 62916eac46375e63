"""The real command line in a process of its own: help, usage errors, nearest names and completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dgrctl.cli.groups import GROUPS
from dgrctl.errors import InputError, UsageError
from dgrctl.layout import Layout

SLOW = ("numpy", "gguf", "grpc", "cryptography", "pydantic", "pygments", "markdown_it", "typer.rich_utils")
PROGRAM = "import sys; from dgrctl.cli.main import main; code = main(); "


def dgrctl(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dgrctl", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def complete(line: str) -> list[str]:
    words = line.split(" ")
    done = dgrctl(_DGRCTL_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def refusal(*words: str, code: int = UsageError.exit_code) -> dict[str, str]:
    done = dgrctl(*words, "--json")
    assert done.returncode == code, done.stderr
    error: dict[str, str] = json.loads(done.stdout)["error"]
    assert set(error) == {"class", "what", "where", "remedy", "exit_code"}
    assert error["what"] in done.stderr
    return error


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_help_loads_nothing_slow(group: str) -> None:
    words = [*group.split(), "--help"]
    program = f"{PROGRAM}print('loaded:', *(name for name in {SLOW} if name in sys.modules)); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
    assert "Usage: dgrctl" in done.stdout
    assert "<bool>" not in done.stdout


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_help_fits_a_narrow_terminal(group: str) -> None:
    lines = dgrctl(*group.split(), "--help", COLUMNS="60").stdout.splitlines()
    assert max(len(line) for line in lines) <= 60
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("arch certify", "dgrctl arch certify [OPTIONS] [NAME]..."),
        ("evidence verify", "dgrctl evidence verify [OPTIONS] {FILE}..."),
        ("patch shell", "dgrctl patch shell [OPTIONS] [-- COMMAND]..."),
    ],
)
def test_usage_marks_what_can_be_repeated_once(command: str, usage: str) -> None:
    assert f"Usage: {usage} " in dgrctl(*command.split(), "--help").stdout


def test_help_without_a_terminal_has_no_colours() -> None:
    assert "\x1b" not in dgrctl("run", "--help", TERM="xterm-256color").stdout


def test_help_of_the_top_names_every_group_in_its_panel() -> None:
    lines = dgrctl("--help").stdout.splitlines()
    for name, (panel, summary) in GROUPS.items():
        assert any(panel in line for line in lines)
        assert any(name in line and summary in line for line in lines)


def test_help_shows_examples() -> None:
    assert "dgrctl build --lane cpu" in dgrctl("build", "--help").stdout


class TestUsageErrors:
    """Exit code 2, the shape of every other error, and the usage of the command that was typed."""

    def test_a_missing_option(self) -> None:
        error = refusal("build")
        assert error["what"] == "the option --lane is missing"
        assert error["where"].startswith("dgrctl build ")

    def test_an_unknown_option_gets_the_nearest(self) -> None:
        error = refusal("build", "--lnae", "cpu")
        assert error["where"].startswith("dgrctl build ")
        assert "did you mean --lane?" in error["remedy"]

    def test_no_abbreviation(self) -> None:
        assert "has no option --forc" in refusal("fetch", "--forc")["what"]

    @pytest.mark.parametrize(
        ("words", "meant"), [(("biuld",), "build"), (("model", "pul"), "pull"), (("patch", "exprt"), "export")]
    )
    def test_an_unknown_command_gets_the_nearest(self, words: tuple[str, ...], meant: str) -> None:
        assert f"did you mean {meant}?" in refusal(*words)["remedy"]

    def test_a_value_that_is_none_of_its_kind(self) -> None:
        error = refusal("build", "--lane", "cpu", "--jobs", "many")
        assert error["what"].startswith("the option --jobs cannot be used: ")

    def test_a_lane(self) -> None:
        assert "did you mean cuda?" in refusal("build", "--lane", "cudaa")["remedy"]

    def test_options_that_exclude_each_other(self) -> None:
        error = refusal("run", "--recipe", "a", "--route", "b", "--prompt", "c")
        assert error["what"] == "--recipe and --route exclude each other"

    def test_one_of_several_is_missing(self) -> None:
        assert refusal("run", "--recipe", "a")["what"] == "one of --prompt, --prompt-file is missing"

    def test_without_json_nothing_goes_to_stdout(self) -> None:
        done = dgrctl("build")
        assert (done.returncode, done.stdout) == (UsageError.exit_code, "")


class TestUnknownNames:
    """Names that only the logic below knows."""

    def test_a_recipe(self) -> None:
        error = refusal("recipe", "check", "smollm2-135m.cpu-2stag", code=InputError.exit_code)
        assert "did you mean smollm2-135m.cpu-2stage?" in error["remedy"]

    def test_a_model(self) -> None:
        error = refusal("model", "verify", "smollm2-135m-instruct-q41", code=InputError.exit_code)
        assert "did you mean smollm2-135m-instruct-q4_1?" in error["remedy"]


class TestCompletion:
    """Through the mechanism that the shells use."""

    def test_commands(self) -> None:
        assert complete("dgrctl ma") == ["matrix"]
        assert complete("dgrctl model ver") == ["verify"]

    def test_lanes(self) -> None:
        assert complete("dgrctl build --lane cu") == ["cuda"]

    def test_recipes(self) -> None:
        assert "smollm2-135m.cpu-2stage" in complete("dgrctl run --recipe smol")

    def test_models(self) -> None:
        assert complete("dgrctl model pull smollm2-135m-instruct-q4") == ["smollm2-135m-instruct-q4_1"]

    def test_architectures(self) -> None:
        assert "llama" in complete("dgrctl arch check lla")

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_every_shell_gets_its_script(self, shell: str) -> None:
        done = dgrctl(_DGRCTL_COMPLETE=f"source_{shell}")
        assert (done.returncode, "dgrctl" in done.stdout) == (0, True)


class TestStanding:
    """``dgrctl`` alone, in a checkout where nothing was done."""

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Path:
        for name in ("manifests", "patches"):
            shutil.copytree(Layout.find().root / name, tmp_path / name)
        return tmp_path

    def test_as_json(self, fresh: Path) -> None:
        done = dgrctl("--json", DGR_ROOT=str(fresh))
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert [step["name"] for step in document["steps"]] == ["fetched", "patched", "built", "pulled", "certified"]
        assert (document["steps"][0]["there"], document["next"], document["verified"]) == ([], "dgrctl fetch", False)

    def test_in_words(self, fresh: Path) -> None:
        done = dgrctl(DGR_ROOT=str(fresh))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].split(maxsplit=1) == ["next", "dgrctl fetch"]
        assert "not verified" in done.stderr
