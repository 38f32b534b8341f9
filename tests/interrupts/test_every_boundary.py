"""Every act of the commands that change a host, enumerated: cut off there the next command reaches its promise.

Some 1,100 commands and as many ways back: `make interrupts` runs it, three machines side by side.
"""

import pytest

from dsv4ctl.problems import CannotRun
from tests.interrupts import journeys
from tests.interrupts.cutting import FULL, KILL, ORPHAN, READ_ONLY, Boundary
from tests.interrupts.journeys import COMMANDS, Host
from tests.interrupts.ledger import Cut, Ledger

HOWS = {"SIGKILL": KILL, "SIGKILL, its child runs on": ORPHAN, "ENOSPC": FULL, "EROFS": READ_ONLY}
# So many tests are each command and way of cutting it off, so that workers have something to share.
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_cut_off_anywhere_leaves_a_host_from_which_the_next_arrives(
    host: Host, kept: Ledger, name: str, how: str, part: int
) -> None:
    acts = [where for where in kept.acts(name, lambda: journeys.acts(host, name)) if cuts(HOWS[how], where)]
    todo = [where for where in acts[part::PARTS] if where not in kept.arrived(name, how)]
    if todo:
        host.must_deploy(host.serves)
    wrong: list[str] = []
    for where in todo:
        broken = tried(host, name, where, HOWS[how])
        kept.keep(Cut(command=name, how=how, where=where, reached=host.reached, status=host.status, wrong=broken))
        wrong += [f"{where.label} ({where.turn}): {said}" for said in broken]

    assert not wrong, "\n".join(wrong)


def cuts(how: str, where: Boundary) -> bool:
    """Whether an act can be cut off in this way: disks refuse writes, and children are started."""
    if how in (FULL, READ_ONLY):
        return where.writes
    return how != ORPHAN or where.label.startswith("start ")


def tried(host: Host, name: str, where: Boundary, how: str) -> tuple[str, ...]:
    """Cut a command off and go the way back; the promises that were broken."""
    try:
        return tuple(COMMANDS[name][0](host, where, how))
    except CannotRun as problem:
        return (f"{problem}",)
