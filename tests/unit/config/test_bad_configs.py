"""Each file in bad/: a config, then after "=== options" KEY = TEXT, then after "=== problems" the exact messages."""

from pathlib import Path

import pytest

from dsv4ctl import config
from dsv4ctl.problems import BadConfig, Status

CASES = sorted((Path(__file__).parent / "bad").glob("*.txt"))


def parts(file: Path) -> tuple[str, dict[str, object], tuple[str, ...]]:
    before, _, problems = file.read_text().partition("=== problems\n")
    text, _, options = before.partition("=== options\n")
    flags: dict[str, object] = {
        key: value for key, _, value in (line.partition(" = ") for line in options.splitlines())
    }
    return text, flags, tuple(problems.splitlines())


def test_the_table_of_bad_configs_is_there() -> None:
    assert len(CASES) >= 30


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_a_bad_config_is_answered_with_exactly_these_problems(file: Path) -> None:
    text, flags, problems = parts(file)
    with pytest.raises(BadConfig) as raised:
        config.load(text, flags, path="config.toml")
    assert raised.value.messages == problems
    assert raised.value.status is Status.USAGE
    assert "dsv4ctl config example" in raised.value.hint


def test_an_api_key_among_the_arguments_is_not_repeated_in_the_message() -> None:
    with pytest.raises(BadConfig) as raised:
        config.load('[engine]\nargs = ["--api-key=hunter2", "--api-key hunter2"]\n', {}, path="config.toml")
    assert "hunter2" not in str(raised.value)


def test_a_wrong_value_of_a_variable_named_like_a_secret_is_not_repeated_in_the_message() -> None:
    with pytest.raises(BadConfig) as raised:
        config.load('[engine.environment]\nHF_TOKEN = ["hunter2"]\n', {}, path="config.toml")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("content", "line"), [(b"\xff", 1), (b"port = 30001\n# caf\xe9\n", 2)])
def test_a_file_that_is_not_utf8_is_told_with_the_line(content: bytes, line: int) -> None:
    with pytest.raises(BadConfig, match=f"^config.toml:{line}: cannot read this line: it is not UTF-8 text$"):
        config.decode(content, path="config.toml")


def test_the_mark_that_editors_of_other_systems_begin_a_file_with_is_no_statement() -> None:
    text = config.decode(b"\xef\xbb\xbfport = 30007\r\n", path="config.toml")
    assert config.load(text, {}, path="config.toml").spec.port == 30007


def test_an_ipv4_address_in_the_form_of_ipv6_is_refused_before_any_load() -> None:
    with pytest.raises(BadConfig, match=r"did you mean 127\.0\.0\.1\?"):
        config.load('host = "::ffff:127.0.0.1"', {}, path="config.toml")


@pytest.mark.parametrize("text", ["a = 1 # \0", "# \udcff", "#" * 1024 * 1024 + "#"])
def test_what_is_no_text_file_is_refused_whole(text: str) -> None:
    with pytest.raises(BadConfig, match="it is no text file of at most 1 MiB"):
        config.load(text, {}, path="config.toml")


def test_a_wrong_value_in_the_file_does_not_matter_where_an_option_replaces_it() -> None:
    assert config.load("port = 80\n", {"port": "30005"}, path="config.toml").spec.port == 30005
