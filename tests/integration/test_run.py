"""``dgrctl run`` on real workers: its text is the whole model's, alone and beside others, and bad input starts nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dgr.v1 import common_pb2

from dgrctl.errors import AdmissionError, InputError
from dgrctl.runtime.answer import collect

if TYPE_CHECKING:
    from dgrctl.recipes.recipe import Recipe
    from dgrctl.runtime.route import LocalRoute

RECIPE = "smollm2-135m.cpu-2stage"
QUESTION = "Name three rivers in Europe."
LONG_RAW = "The history of the lighthouse began long ago, when sailors needed a way to find the coast at night. " * 12

Greedy = Callable[..., tuple[str, list[int]]]


def run_json(dgrctl: Any, *arguments: str) -> dict[str, Any]:
    finished = dgrctl.run("run", "--json", *arguments)
    assert finished.returncode == 0, finished.stderr.decode()
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


@pytest.mark.parametrize("name", [RECIPE, "smollm2-135m.cpu-3stage"])
def test_streamed_text_is_the_whole_models(dgrctl: Any, greedy: Greedy, name: str) -> None:
    finished = dgrctl.run("run", "--recipe", name, "--prompt", QUESTION, "--max-tokens", "40")
    assert finished.returncode == 0, finished.stderr.decode()
    assert finished.stdout.decode() == greedy(QUESTION, 40)[0]
    assert b"tokens/s" in finished.stderr
    assert b"first token after" in finished.stderr


def test_json_holds_text_tokens_and_times(dgrctl: Any, greedy: Greedy) -> None:
    document = run_json(dgrctl, "--recipe", RECIPE, "--prompt", QUESTION, "--max-tokens", "24")
    text, token_ids = greedy(QUESTION, 24)
    assert (document["text"], document["token_ids"]) == (text, token_ids)
    assert document["finish_reason"] == "max_tokens"
    assert document["generated_tokens"] == len(token_ids) == 24
    assert document["prompt_tokens"] == len(document["prompt_token_ids"]) > 0
    assert document["decode_us"] > 0
    assert document["prefill_us"] > 0
    assert document["time_to_first_token_us"] >= document["prefill_us"]
    assert document["tokens_per_second"] == pytest.approx(23e6 / document["decode_us"], rel=1e-3)
    assert [stage["index"] for stage in document["stages"]] == [0, 1]


def test_a_raw_prompt_longer_than_one_ubatch_from_standard_input(dgrctl: Any, greedy: Greedy) -> None:
    arguments = ("run", "--json", "--raw", "--recipe", RECIPE, "--prompt-file", "-", "--max-tokens", "8")
    finished = dgrctl.run(*arguments, stdin=LONG_RAW.encode())
    assert finished.returncode == 0, finished.stderr.decode()
    document = json.loads(finished.stdout)
    assert document["prompt_tokens"] > 128
    assert document["token_ids"] == greedy(LONG_RAW, 8, chat_template=False)[1]


def test_text_beyond_ascii_comes_through_a_locale_that_has_none(dgrctl: Any, greedy: Greedy) -> None:
    question = "Répète exactement : « où, déjà, 日本語, 🦙 »"
    environment = {**dgrctl.environment, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    command = dgrctl.command("run", "--recipe", RECIPE, "--prompt", question, "--max-tokens", "24")
    finished = subprocess.run(command, capture_output=True, cwd=dgrctl.layout.root, env=environment, check=False)
    # Without a UTF-8 locale the argument itself is told apart by bytes; the answer is UTF-8 all the same.
    assert finished.returncode == 0, finished.stderr.decode()
    assert finished.stdout.decode() == greedy(question, 24)[0]


def test_two_runs_at_once_both_give_the_whole_models_text(dgrctl: Any, greedy: Greedy) -> None:
    prompts = [QUESTION, "Explain what a prime number is."]
    with ThreadPoolExecutor(2) as pool:
        texts = list(
            pool.map(lambda text: run_json(dgrctl, "--recipe", RECIPE, "--prompt", text, "--max-tokens", "24")["text"], prompts)
        )
    assert texts == [greedy(text, 24)[0] for text in prompts]


def test_requests_at_once_on_the_same_workers_do_not_mix(route: LocalRoute, greedy: Greedy) -> None:
    prompts = [QUESTION, "Explain what a prime number is.", "Write a short poem about rain.", "What is the capital of Peru?"]

    def ask(text: str) -> str:
        prompt = common_pb2.Prompt(text=text, chat_template=True)
        return collect(route.generate(prompt, max_tokens=24), lambda _: None).text

    with ThreadPoolExecutor(len(prompts)) as pool:
        texts = list(pool.map(ask, prompts))
    assert texts == [greedy(text, 24)[0] for text in prompts]


def test_a_session_that_is_left_early_frees_its_place(route: LocalRoute, recipe: Recipe, greedy: Greedy) -> None:
    prompt = common_pb2.Prompt(text=QUESTION, chat_template=True)
    for _ in range(2 * recipe.execution.sessions):
        responses = route.generate(prompt, max_tokens=200)
        assert next(responses).HasField("accepted")
        assert next(responses).HasField("token")
        responses.close()
    assert collect(admitted(route, prompt), lambda _: None).text == greedy(QUESTION, 24)[0]


def admitted(route: LocalRoute, prompt: common_pb2.Prompt) -> Iterator[Any]:
    """Cancelling is told to the head and to the stages one after the other, so the last place may be free a moment later."""
    while True:
        responses = route.generate(prompt, max_tokens=24)
        try:
            first = next(responses)
        except AdmissionError:
            continue
        yield first
        yield from responses
        return


def test_more_than_the_context_is_refused_with_the_bound(dgrctl: Any, route: LocalRoute) -> None:
    finished = dgrctl.run("run", "--json", "--recipe", RECIPE, "--prompt", "x", "--max-tokens", "5000")
    assert finished.returncode == AdmissionError.exit_code
    error = json.loads(finished.stdout)["error"]
    assert error["class"] == "admission"
    assert "context = 2048" in error["what"]
    with pytest.raises(AdmissionError, match="context = 2048"):
        list(route.generate(common_pb2.Prompt(text="word " * 2100), max_tokens=1))


def test_more_sessions_than_there_are_places_are_refused_and_the_others_go_on(
    route: LocalRoute, recipe: Recipe, greedy: Greedy
) -> None:
    prompt = common_pb2.Prompt(text=QUESTION, chat_template=True)
    running = [route.generate(prompt, max_tokens=24) for _ in range(recipe.execution.sessions)]
    for responses in running:
        assert next(responses).HasField("accepted")
    with pytest.raises(AdmissionError, match=f"sessions = {recipe.execution.sessions}") as caught:
        next(route.generate(prompt, max_tokens=24))
    assert "stage 0" in caught.value.what
    for responses in running:
        pieces = b"".join(response.token.piece for response in responses if response.HasField("token"))
        assert pieces.decode() == greedy(QUESTION, 24)[0]


def test_token_ids_outside_the_vocabulary_are_refused(route: LocalRoute) -> None:
    vocabulary = route.stages[0].description.vocabulary
    for token in (-1, vocabulary, 2**31 - 1):
        with pytest.raises(InputError, match="vocabulary"):
            list(route.generate(common_pb2.Prompt(tokens=common_pb2.TokenIds(ids=[token])), max_tokens=1))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--recipe", RECIPE, "--prompt", ""], 3, b"the prompt is empty"),
        (["--recipe", RECIPE, "--prompt", "x", "--max-tokens", "0"], 3, b"--max-tokens is 0"),
        (["--recipe", RECIPE, "--prompt-file", "/no/such/file"], 3, b"cannot be read"),
        (["--recipe", "no-such-recipe", "--prompt", "x"], 3, b"unknown recipe"),
        (["--route", "nonsense", "--prompt", "x"], 3, b"is not an address"),
        (["--route", "127.0.0.1:1,127.0.0.1:1", "--prompt", "x"], 3, b"twice"),
        (["--route", "127.0.0.1:1", "--prompt", "x"], 10, b"stage 0 cannot be reached"),
        (["--route", "127.0.0.1:1", "--storage", "elsewhere", "--prompt", "x"], 2, b"--storage"),
        (["--recipe", RECIPE, "--route", "127.0.0.1:1", "--prompt", "x"], 2, b"exclude each other"),
        (["--recipe", RECIPE], 2, b"one of --prompt, --prompt-file is missing"),
        (["--prompt", "x"], 2, b"one of --recipe, --route is missing"),
    ],
)
def test_bad_input_starts_nothing(dgrctl: Any, arguments: list[str], code: int, words: bytes) -> None:
    runs = dgrctl.layout.runs
    before = set(runs.iterdir()) if runs.exists() else set()
    finished = dgrctl.run("run", *arguments)
    assert finished.returncode == code, finished.stderr.decode()
    assert words in finished.stderr
    assert b"Traceback" not in finished.stderr
    assert finished.stdout == b""
    assert (set(runs.iterdir()) if runs.exists() else set()) <= before


def test_a_prompt_file_that_is_not_utf8(dgrctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "latin1.txt"
    file.write_bytes("café".encode("latin-1"))
    finished = dgrctl.run("run", "--json", "--recipe", RECIPE, "--prompt-file", str(file))
    assert finished.returncode == InputError.exit_code
    assert str(file) in json.loads(finished.stdout)["error"]["where"]


def test_a_reader_that_goes_away_ends_the_run_and_its_workers(dgrctl: Any) -> None:
    arguments = ("run", "--raw", "--recipe", RECIPE, "--prompt", "Once upon a time", "--max-tokens", "1000")
    with dgrctl.start(*arguments) as process:
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait() == 141
        assert b"Traceback" not in process.stderr.read()
