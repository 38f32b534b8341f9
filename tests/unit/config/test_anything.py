"""Whatever a file or a command line holds, the answer is a spec or the problems; never another exception."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4ctl import config
from dsv4ctl.config.schema import KEYS, TOP_KEYS, EngineTable, LimitsTable, MemoryTable
from dsv4ctl.model import HostSpec
from dsv4ctl.problems import BadConfig

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.sampled_from(
    [
        "512k",
        "15m",
        "0-3",
        "4-7",
        "none",
        "/opt/x",
        "127.0.0.1",
        "::",
        "single-tp4",
        "pd",
        "--tp",
        "--x=1",
        "-1",
        "",
        "\0",
    ]
)
SCALARS = TEXT | WORDS | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.integers(0, 65536)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=8
)
NAMES = ("engine", "memory", "limits", "modes", "server", "tp", "gpus", "single-tp4", "pd", "mine", "prefill")
KEY = st.sampled_from(
    [*NAMES, *TOP_KEYS, *EngineTable.model_fields, *MemoryTable.model_fields, *LimitsTable.model_fields]
)
TABLES = st.dictionaries(
    KEY | TEXT, st.recursive(VALUES, lambda v: st.dictionaries(KEY | TEXT, v, max_size=4)), max_size=6
)


def toml(value: Any) -> str:
    """A value as TOML, tables inline."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case float() if math.isfinite(value):
            return repr(value) if "e" in repr(value) or "." in repr(value) else f"{value!r}.0"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return str(value)


def document(tables: Mapping[str, Any]) -> str:
    return "".join(f"{toml(key)} = {toml(value)}\n" for key, value in tables.items())


def answers(text: str | None, flags: Mapping[str, object]) -> None:
    """The one promise: a spec that can be shown, or messages of one printable line each."""
    try:
        effective = config.load(text, flags, path="config.toml")
    except BadConfig as bad:
        assert bad.messages
        assert all(message.isprintable() for message in bad.messages), bad.messages
        return
    assert isinstance(effective.spec, HostSpec)
    assert all(row.text.isprintable() and row.source for row in config.rows(effective))
    assert all(warning.isprintable() for warning in config.warnings(effective.spec))


@settings(max_examples=100, deadline=None)
@given(TABLES)
def test_any_document_gives_a_spec_or_its_problems(tables: dict[str, Any]) -> None:
    answers(document(tables), {})


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KEYS), VALUES)
def test_any_value_under_any_known_key_gives_a_spec_or_its_problems(key: str, value: Any) -> None:
    answers(f"{key} = {toml(value)}\n", {})


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(KEYS) | st.text(max_size=10), st.text(max_size=10) | VALUES | st.binary() | st.none()
    )
)
def test_any_options_give_a_spec_or_their_problems(flags: dict[str, object]) -> None:
    answers(None, flags)


@settings(max_examples=100, deadline=None)
@given(TABLES, st.dictionaries(st.sampled_from(KEYS), WORDS, max_size=4))
def test_any_options_over_any_document_give_a_spec_or_their_problems(
    tables: dict[str, Any], flags: dict[str, object]
) -> None:
    answers(document(tables), flags)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80) | st.text("[]{}=\"'#.,\n\\a1 \t\r", max_size=40))
def test_any_text_gives_a_spec_or_its_problems(text: str) -> None:
    answers(text, {})


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_a_text_or_a_problem(content: bytes) -> None:
    try:
        text = config.decode(content, path="config.toml")
    except BadConfig:
        return
    answers(text, {})


@pytest.mark.parametrize("key", KEYS)
def test_a_number_that_python_refuses_to_print_gives_its_problem(key: str) -> None:
    answers(f"{key} = 0x{'f' * 5000}\n", {})
    answers(f"{key} = [0x{'f' * 5000}, [], {{}}]\n", {})
    answers(None, {key: 16**5000})
