"""What an engine's --help says of its options, with the recorded help of two SGLangs and with argparse itself."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.engine.options import parse_help
from dsv4ctl.problems import EngineMissing

RECORDED = Path(__file__).with_name("recorded")
TODAY = (RECORDED / "help-0.5.23.txt").read_text()
OLDER = (RECORDED / "help-0.5.3.txt").read_text()

names = st.from_regex(r"--[a-z][a-z0-9]{0,12}(-[a-z0-9]{1,12}){0,3}", fullmatch=True)
explanations = st.text("abc -{},.'", max_size=200).map(lambda text: f"see --port, {text}")
choice_lists = st.lists(st.from_regex(r"[a-z0-9][\w.-]{0,8}", fullmatch=True), min_size=1, max_size=9, unique=True)


def test_todays_help_lists_todays_spellings_only() -> None:
    options, _ = parse_help(TODAY)
    assert len(options) == 559
    assert {"-h", "--model-path", "--model", "--tp-size", "--config", "--cuda-graph-max-bs-decode"} <= options
    assert not {"--cuda-graph-max-bs", "--tp", "--model_path", "--port + 10000."} & options


def test_an_older_help_lists_the_older_spellings() -> None:
    options, choices = parse_help(OLDER)
    assert "--cuda-graph-max-bs" in options
    assert "--cuda-graph-max-bs-decode" not in options
    assert "deepseekv4" not in choices["--tool-call-parser"]


def test_choices_are_those_of_the_option_and_of_each_of_its_names() -> None:
    _, choices = parse_help(TODAY)
    assert choices["--kv-cache-dtype"] == (
        *("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16"),
    )
    assert "deepseekv4" in choices["--tool-call-parser"]
    assert "deepseek-v4" in choices["--reasoning-parser"]
    assert "--model-path" not in choices


def test_an_option_that_is_only_mentioned_in_an_explanation_is_none() -> None:
    options, choices = parse_help(
        "options:\n  --old OLD             Deprecated: use\n                        --new {a,b}\n  --last\n"
    )
    assert options == {"--old", "--last"}
    assert choices == {}


def test_colours_do_not_hide_an_option() -> None:
    assert parse_help("  \x1b[1;36m--host\x1b[0m \x1b[33mHOST\x1b[0m  the host\n")[0] == {"--host"}


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):\n  File x\nImportError: no\n"])
def test_a_text_without_options_is_refused(text: str) -> None:
    with pytest.raises(EngineMissing, match="lists none"):
        parse_help(text)


@given(
    entries=st.dictionaries(names, st.tuples(names, explanations, st.none() | choice_lists), max_size=8),
    columns=st.integers(30, 200),
)
def test_whatever_argparse_prints_is_read_back(
    entries: dict[str, tuple[str, str, list[str] | None]], columns: int
) -> None:
    parser = argparse.ArgumentParser(
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=columns), conflict_handler="resolve"
    )
    for name, (alias, explanation, choices) in entries.items():
        parser.add_argument(name, *({alias} - {name}), help=explanation, choices=choices)
    options, choices_read = parse_help(parser.format_help())
    shown = [action for action in parser._actions if action.option_strings]
    assert options == {name for action in shown for name in action.option_strings}
    assert choices_read == {
        name: tuple(action.choices) for action in shown if action.choices for name in action.option_strings
    }
