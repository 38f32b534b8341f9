"""Every act of deploy, rollback and teardown, enumerated: cut off there the next command reaches its promise.

Hundreds of deploys: `make interrupts` runs it, DSV4CTL_CUTS="2/4" is the second of four parts.
"""

import os

import pytest

from tests.interrupts import journeys
from tests.interrupts.cutting import FULL, KILL, ORPHAN, READ_ONLY, Boundary
from tests.interrupts.journeys import COMMANDS, Host

HOWS = {"SIGKILL": KILL, "SIGKILL, its child runs on": ORPHAN, "ENOSPC": FULL, "EROFS": READ_ONLY}


def part(boundaries: list[Boundary]) -> list[Boundary]:
    number, _, of = os.environ.get("DSV4CTL_CUTS", "1/1").partition("/")
    return boundaries[int(number) - 1 :: int(of)]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_cut_off_anywhere_leaves_a_host_from_which_the_next_arrives(
    host: Host, name: str, how: str
) -> None:
    journey, tried, cut = COMMANDS[name][0], 0, 0
    wrong: list[str] = []
    for where in part(journeys.acts(host, name)):
        if HOWS[how] in (FULL, READ_ONLY) and not where.writes:
            continue
        if HOWS[how] == ORPHAN and not where.label.startswith("start "):
            continue
        broken = [f"{where.label} ({where.turn}): {said}" for said in journey(host, where, HOWS[how])]
        tried, cut, wrong = tried + 1, cut + (host.status != 0), wrong + broken
        say(
            f"{name}, {how}: {tried}. {where.label} ({where.turn}): status {host.status}, {len(broken)} broken promises"
        )

    say(f"{name}, {how}: {tried} boundaries, at {cut} it ended there, {len(wrong)} broken promises")
    assert not wrong, "\n".join(wrong)


def say(line: str) -> None:
    """Tell how far it is: it takes hours."""
    print(line, flush=True)  # noqa: T201 -- a person waits for it
