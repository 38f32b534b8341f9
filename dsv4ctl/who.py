"""Who a process is, in words: the same in every message, so that one holder has one name. Pure."""

from datetime import UTC, datetime

from dsv4ctl import cgroups
from dsv4ctl.model import Process


def words(process: Process) -> str:
    """`pid 4711 (python3, user root, login session 3, since 2026-11-29 18:02:11)`."""
    since = datetime.fromtimestamp(process.started_at, UTC).astimezone()
    place = cgroups.place(process.cgroup)
    parts = [process.comm, f"user {process.user}", *([place] if place else []), f"since {since:%Y-%m-%d %H:%M:%S}"]
    return f"pid {process.pid} ({', '.join(parts)})"


def unknown(place: str) -> str:
    """The same of somebody of whom it is only known where he runs; '' for not even that."""
    return f"a process{f' of {place}' if place else ''}"
