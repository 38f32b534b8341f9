"""What a deploy says while it works: on a terminal and as plain lines, of one unit and of several side by side."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.live import Live

from dsv4ctl.cli.live import Lines, View
from dsv4ctl.model import ActiveState, Phase, RunState
from dsv4ctl.steps import Reload, Start, StartTogether
from dsv4ctl.telling import Doing, Seen, Wrote
from tests.unit.test_plan import unit
from tests.unit.test_plan_modes import DECODE, PREFILL, asked

STATE = RunState(name="x", digest="d", phase=Phase.WEIGHTS, words="", since=0.0, started_at=0.0, pid=1)
HALVES = StartTogether(
    starts=tuple(Start(instance=one, reason="new") for one in asked("pd").instances[:2]), reason="side by side"
)


def loading(name: str, done: int, *, phase: Phase = Phase.WEIGHTS) -> Seen:
    starting = replace(unit(name, ActiveState.ACTIVATING), status_text=f"loading weights {done}/46")
    return Seen(starting, replace(STATE, phase=phase, done=done, total=46))


def test_plain_lines_of_several_units_say_whose_they_are_and_each_has_its_own_pace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    lines.tell(Doing(HALVES))
    for done in (1, 2, 3):
        lines.tell(loading(PREFILL, done))
        lines.tell(loading(DECODE, done))
    lines.tell(loading(DECODE, 46, phase=Phase.GRAPHS))

    said = [line.split("s  ", 1)[1].strip() for line in capsys.readouterr().err.splitlines()[1:]]

    assert said == [
        "dsv4-prefill: loading weights 1/46",
        "dsv4-decode: loading weights 1/46",
        "dsv4-decode: loading weights 46/46",
    ]


def test_what_a_unit_wrote_last_stands_below_its_name_and_nothing_where_it_wrote_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Lines().tell(Wrote(PREFILL, ()))
    Lines().tell(Wrote(DECODE, ("RuntimeError: no", "Received sigquit")))

    said = capsys.readouterr().err.splitlines()

    assert said == [f"the last lines of {DECODE}:", "  | RuntimeError: no", "  | Received sigquit"]


def test_a_terminal_of_few_lines_shows_both_halves_however_much_was_done_before() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=10)
    with Live(console=console, auto_refresh=False) as live:
        view = View(live)
        for number in range(30):
            view.tell(Doing(Reload(reason=f"number {number}")))
        view.tell(Doing(HALVES))
        view.tell(loading(PREFILL, 12))
        view.tell(loading(DECODE, 31))
        out.truncate(0)
        live.refresh()
        last = out.getvalue()

    assert "dsv4-prefill: loading weights 12/46" in last
    assert "dsv4-decode: loading weights 31/46" in last
    assert "12/46" in last
    assert "number" not in last
