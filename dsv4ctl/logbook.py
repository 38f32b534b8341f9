"""The log of instances, from the journal. Changes nothing."""

from collections.abc import Iterable, Iterator

from dsv4ctl import installed, systemd
from dsv4ctl.host import Host
from dsv4ctl.systemd import Entry


def entries(host: Host, roles: Iterable[str], *, lines: int, follow: bool) -> Iterator[Entry]:
    """The last `lines` of the log of some roles or instances, of all where none is named, in the order they were
    written; with `follow` what comes after. Raises Problem when there is no such instance.
    """
    units = tuple(one.unit for one in installed.chosen(host, roles))
    yield from systemd.follow_journal(*units, lines=lines) if follow else systemd.journal(*units, lines=lines)
