"""The table of troubles as a whole, and the choice of the cause among many."""

import re
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.engine.trouble_kinds import Kind, Row, Severity
from dsv4ctl.engine.troubles import LONGEST_TEXT, TABLE, Trouble, cause_of, find

RECORDED = Path(__file__).with_name("recorded")
LINES = [
    re.sub(r"^\[2026[^\]]*\] ", "", line)
    for file in chain(RECORDED.glob("*.log"), RECORDED.glob("lines/troubles-*.txt"))
    for line in file.read_text().splitlines()
]


def trouble(severity: Severity, text: str = "") -> Trouble:
    return Trouble(kind=Kind.CRASH, severity=severity, text=text, cause=text, advice="")


def told_by(row: Row) -> list[str]:
    """The recorded lines that fall to this row and to none above it."""
    return [
        line
        for line in LINES
        if row.sign in line.lower() and row.pattern.search(line) and TABLE.index(row) == first_that_fits(line)
    ]


def first_that_fits(line: str) -> int:
    return next(at for at, row in enumerate(TABLE) if row.sign in line.lower() and row.pattern.search(line))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.kind}: {row.sign}")
def test_every_row_is_told_by_a_recorded_line(row: Row) -> None:
    assert told_by(row)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.kind}: {row.sign}")
def test_every_blank_in_a_row_is_filled_by_its_pattern(row: Row) -> None:
    names = dict.fromkeys(row.pattern.groupindex, "x")
    assert row.cause.format_map(names)
    assert row.advice.format_map(names)
    assert row.sign == row.sign.lower()


def test_every_kind_of_trouble_has_a_row() -> None:
    assert {row.kind for row in TABLE} == set(Kind)


def test_a_specific_cause_beats_the_crash_that_was_told_before_it() -> None:
    seen = [
        trouble(Severity.WARNING, "pool is full"),
        trouble(Severity.CONSEQUENCE, "scheduler hit an exception"),
        trouble(Severity.CAUSE, "out of memory"),
        trouble(Severity.SUSPECT, "NCCL"),
        trouble(Severity.CAUSE, "another rank, out of memory too"),
    ]
    found = cause_of(seen)
    assert found is not None
    assert found.text == "out of memory"


def test_warnings_alone_are_no_cause() -> None:
    assert cause_of([trouble(Severity.WARNING)] * 3) is None
    assert cause_of([]) is None


@given(st.lists(st.sampled_from(Severity)))
def test_the_cause_is_the_first_of_the_most_severe_and_fatal(severities: list[Severity]) -> None:
    found = cause_of(trouble(severity, str(at)) for at, severity in enumerate(severities))
    worst = max(severities, default=Severity.WARNING)
    if worst is Severity.WARNING:
        assert found is None
    else:
        assert found is not None
        assert found.is_fatal
        assert found.text == str(severities.index(worst))


def test_the_line_is_shortened_and_the_advice_is_not() -> None:
    found = find("RuntimeError: CUDA error: " + "x" * 9000)
    assert found is not None
    assert len(found.text) == len(found.cause) == LONGEST_TEXT
    assert found.advice.endswith("the engine")


def test_braces_in_a_line_are_text() -> None:
    found = find("ValueError: {kind} {0} {why.__class__}")
    assert found is not None
    assert found.cause == "the engine failed with ValueError: {kind} {0} {why.__class__}"
