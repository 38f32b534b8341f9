"""Command lines as people type them for SGLang and its router, and what they say."""

import pytest

from dsv4ctl.engine import readback
from dsv4ctl.engine.readback import Launch, Program

PYTHON = "/opt/sglang/bin/python"


def read(text: str, known: tuple[str, ...] = ()) -> Launch:
    found = readback.launch(text.split(), known)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("typed", "program", "python"),
    [
        (f"{PYTHON} -m sglang.launch_server --model-path /m", Program.ENGINE, PYTHON),
        ("python3 -u -X faulthandler -m sglang.launch_server --model-path /m", Program.ENGINE, "python3"),
        (f"{PYTHON} /opt/sglang/bin/sglang serve /m --port 1", Program.ENGINE, "/opt/sglang/bin/sglang"),
        (f"{PYTHON} -m sglang_router.launch_router --port 1", Program.ROUTER, PYTHON),
        (f"{PYTHON} /opt/x/bin/smg launch --port 1", Program.ROUTER, "/opt/x/bin/smg"),
    ],
)
def test_a_command_line_tells_what_it_starts_and_with_which_interpreter(
    typed: str, program: Program, python: str
) -> None:
    found = read(typed)
    assert (found.program, found.python, found.wiped) == (program, python, False)


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "bash",
        "vim /tmp/sglang serve.md",
        f"{PYTHON} -c from_multiprocessing.spawn --multiprocessing-fork",
        f"{PYTHON} -m",
        f"{PYTHON} -m pytest -m sglang.launch_server",
        f"/opt/conda/bin/python /opt/conda/bin/conda run -n sglang {PYTHON} -m sglang.launch_server --port 1",
        "sglang::scheduler_TP0",
        "sglang::detokenizer",
        f"{PYTHON} /opt/sglang/bin/sglang version",
    ],
)
def test_what_starts_no_engine_is_none_whatever_stands_in_its_arguments(typed: str) -> None:
    assert readback.launch(typed.split()) is None


def test_a_shell_that_names_the_whole_command_in_one_word_is_no_engine() -> None:
    assert readback.launch(("bash", "-c", f"{PYTHON} -m sglang.launch_server --port 1")) is None


def test_a_router_that_gave_itself_a_title_is_a_router_of_which_nothing_is_known() -> None:
    found = readback.launch(("sglang::router       ",))
    assert found == Launch(program=Program.ROUTER, python="", wiped=True)


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        ("--tp 4", "--tp-size", "4"),
        ("--tensor-parallel-size=4", "--tp-size", "4"),
        ("--tp_size 4", "--tp-size", "4"),
        ("--model /m", "--model-path", "/m"),
        ("--served-model n", "--served-model-name", "n"),
        ("--cuda-graph-max-bs 8", "--cuda-graph-max-bs-decode", "8"),
        ("--chunked-prefill-size -1", "--chunked-prefill-size", "-1"),
        ("--port 1 --port 2", "--port", "2"),
        ("--trust-remote-code", "--trust-remote-code", ""),
        ("--numa-node 0 0 1 1", "--numa-node", "0 0 1 1"),
        ('--json-model-override-args {"a":1}', "--json-model-override-args", '{"a":1}'),
    ],
)
def test_options_are_spelled_whole_and_the_last_one_counts(words: str, option: str, value: str) -> None:
    assert read(f"{PYTHON} -m sglang.launch_server {words}").get(option) == value


def test_a_beginning_is_told_from_another_by_the_options_of_that_very_build() -> None:
    words = f"{PYTHON} -m sglang.launch_server --schedule-con 0.8 --dist 5"
    known = ("--schedule-conservativeness", "--dist-timeout", "--dist-init-addr")
    found = read(words, known)
    assert found.get("--schedule-conservativeness") == "0.8"
    assert found.get("--dist") == "5"


@pytest.mark.parametrize(
    "words", ["serve /m/a --tp 4", "serve --trust-remote-code /m/a", "serve --tp 4 --model-path /m/a"]
)
def test_the_model_of_sglang_serve_may_stand_anywhere(words: str) -> None:
    assert read(f"{PYTHON} /opt/sglang/bin/sglang {words}").get("--model-path") == "/m/a"


def test_options_that_may_be_given_again_are_all_there() -> None:
    legs = "--pd-disaggregation --prefill http://a 8998 --prefill http://b --decode http://c"
    found = read(f"{PYTHON} -m sglang_router.launch_router {legs}")
    assert [given.values for given in found.options if given.name == "--prefill"] == [
        ("http://a", "8998"),
        ("http://b",),
    ]
    assert found.get("--pd-disaggregation") == ""


@pytest.mark.parametrize(
    ("text", "number"), [("131072", 131072), ("128k", 128000), ("128Ki", 131072), ("1.5M", 1500000), ("1Mi", 1048576)]
)
def test_numbers_are_those_of_the_engine_whose_k_is_a_thousand(text: str, number: int) -> None:
    assert readback.whole_number(text) == number
