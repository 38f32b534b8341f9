"""templates/config.example.toml: every key is in it, explained, and what it calls a default is the default."""

import re

import pytest

from dsv4ctl import config, resources
from dsv4ctl.cli.options import SWITCHES, TEXTS, option_of
from dsv4ctl.config.schema import KEYS

TEXT = resources.template("config.example.toml")
# A key stands directly behind the "#", prose behind "# ".
KEY_LINE = re.compile(r"#((?:\[|[A-Za-z_]+ = ).*)")
UNCOMMENTED = "\n".join(match[1] if (match := KEY_LINE.fullmatch(line)) else line for line in TEXT.splitlines())


def section_of(number: int) -> str:
    headers = [line.strip("#[]") for line in TEXT.splitlines()[:number] if re.fullmatch(r"#?\[[a-z.-]+\]", line)]
    return headers[-1] + "." if headers else ""


def key_lines() -> dict[str, str]:
    found = {}
    for number, line in enumerate(TEXT.splitlines()):
        match = re.fullmatch(r"#([A-Za-z_0-9]+) = (.*)", line)
        if match:
            found[section_of(number) + match[1]] = line
    return found


def without_no_defaults() -> str:
    lines = [line for line in UNCOMMENTED.splitlines() if not line.endswith("# no default") and "[modes" not in line]
    return "\n".join(lines)


def test_the_example_as_it_is_printed_changes_nothing() -> None:
    assert config.load(TEXT, {}, path="example").spec == config.load(None, {}, path="example").spec


def test_every_key_stands_in_the_example() -> None:
    names = {key for key in key_lines() if not key.startswith(("modes.", "engine.environment."))}
    assert names == set(KEYS) - {"engine.environment"}


def test_what_the_example_calls_a_default_is_the_default() -> None:
    effective = config.load(without_no_defaults(), {}, path="example")
    assert effective.spec == config.load(None, {}, path="example").spec
    assert {key for key in KEYS if effective.sources[key].startswith("example:")} >= {
        "port",
        "limits.starts",
        "engine.args",
    }


@pytest.mark.parametrize("key", [key for key, line in key_lines().items() if line.endswith("# no default")])
def test_a_key_without_default_is_one(key: str) -> None:
    rows = {row.key: row for row in config.rows(config.load(None, {}, path="example"))}
    assert key == "gpus" or key not in rows or rows[key].value is None


def test_every_key_of_the_example_can_be_set_as_it_is_shown() -> None:
    text = re.sub(r"(?m)^venv = .*\n", "", UNCOMMENTED)
    effective = config.load(text, {}, path="example")
    assert {key for key in KEYS if effective.sources[key] == "default"} == {"engine.venv"}
    assert "upper-half" in effective.modes


def test_every_key_of_the_example_is_explained_above_it() -> None:
    lines = TEXT.splitlines()
    for number, line in enumerate(lines):
        if KEY_LINE.fullmatch(line):
            above = next(lines[n] for n in range(number - 1, -1, -1) if not KEY_LINE.fullmatch(lines[n]))
            assert above.startswith(("# ", "[engine.environment]")), line


def test_an_option_that_the_example_names_is_one() -> None:
    named = set(re.findall(r"--[a-z-]+", " ".join(re.findall(r"Options?: (.*)", TEXT))))
    offered = {option_of(key) for key in (*TEXTS, *SWITCHES)} | {"--no-enable-metrics"}
    assert named == offered
