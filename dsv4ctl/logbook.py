"""The log of instances, from the journal. Changes nothing."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from dsv4ctl import installed, systemd
from dsv4ctl.clock import until
from dsv4ctl.host import Host
from dsv4ctl.model import RunState
from dsv4ctl.names import NOTE
from dsv4ctl.problems import Problem
from dsv4ctl.systemd import Entry

LAST_LINES = 10
LAST_WIDTH = 200
# Behind an engine's last words stands what systemd and the supervisor say of its end.
LOOKED_AT = 100
# journald is behind a unit that has just ended; the supervisor's word of the end comes after all of its engine's.
WRITTEN_WITHIN_S = 3.0


def entries(host: Host, roles: Iterable[str], *, lines: int, follow: bool) -> Iterator[Entry]:
    """The last `lines` of the log of some roles or instances, of all where none is named, in the order they were
    written; with `follow` what comes after. Raises Problem when there is no such instance.
    """
    units = tuple(one.unit for one in installed.chosen(host, roles))
    yield from systemd.follow_journal(*units, lines=lines) if follow else systemd.journal(*units, lines=lines)


def last_lines(host: Host, unit: str, state: RunState) -> tuple[str, ...]:
    """What the engine or router of a unit wrote last in a start that has ended with `state`, the oldest line first.

    Without what systemd and the supervisor say of it; () where the journal cannot be read.
    """
    found: tuple[Entry, ...] = ()
    end = f"{NOTE}{state.words}".partition("\n")[0][:LAST_WIDTH]

    def is_whole() -> bool:
        nonlocal found
        found = systemd.journal(unit, lines=LOOKED_AT, since=state.started_at)
        return any(one.message.startswith(end) for one in found)

    with suppress(Problem):
        until(lambda: is_whole() or None, host.clock, WRITTEN_WITHIN_S, 0.05)
    theirs = [one.message.rstrip() for one in found if one.identifier == unit.removesuffix(".service")]
    said = [line[:LAST_WIDTH] for line in theirs if line and not line.startswith(NOTE)]
    return tuple(said[-LAST_LINES:])
