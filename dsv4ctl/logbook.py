"""The log of an instance, from the journal. Changes nothing."""

from collections.abc import Iterator

from dsv4ctl import installed, systemd
from dsv4ctl.host import Host
from dsv4ctl.problems import Problem
from dsv4ctl.systemd import Entry


def entries(host: Host, name: str, *, lines: int, follow: bool) -> Iterator[Entry]:
    """The last `lines` of the named instance's log, and with `follow` what comes after.

    An empty name means the only instance there is. Raises Problem when there is no such instance, or several.
    """
    unit = _unit(host, name)
    yield from systemd.follow_journal(unit, lines=lines) if follow else systemd.journal(unit, lines=lines)


def _unit(host: Host, name: str) -> str:
    units = {i.name: i.unit for i in installed.instances(host)}
    wanted = name.removeprefix("dsv4-").removesuffix(".service")
    if wanted in units:
        return units[wanted]
    if not wanted and len(units) == 1:
        return next(iter(units.values()))
    if not units:
        raise Problem("cannot show a log: nothing is deployed here", hint="dsv4ctl deploy --mode single-tp4")
    there = ", ".join(sorted(units))
    what = f"no instance is called {name}" if name else "say which instance"
    raise Problem(f"cannot show the log: {what} (there is: {there})", hint=f"dsv4ctl logs {min(units)}")
