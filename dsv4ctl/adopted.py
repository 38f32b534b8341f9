"""The scopes into which engines were adopted: which there are, who is in them, and what they hold. Changes nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsv4ctl import cgroups, generations, procs, sockets, systemd
from dsv4ctl.model import ActiveState, GpuView, Unit
from dsv4ctl.names import ADOPTED_SCOPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A scope with its processes, as systemd shows it, and what its name says it is: `role` and `port`."""

    unit: Unit
    role: str
    port: int
    pids: tuple[int, ...]


def of(units: dict[str, Unit]) -> tuple[Adopted, ...]:
    """Those of some units that are scopes of adopted engines and not empty."""
    found = []
    for name, unit in sorted(units.items()):
        made = cgroups.adopted(unit.cgroup)
        if made is not None and unit.active is ActiveState.ACTIVE and (pids := procs.cgroup_pids(unit.cgroup)):
            found.append(Adopted(unit=units[name], role=made.role, port=made.port, pids=pids))
    return tuple(found)


def scopes() -> tuple[Adopted, ...]:
    """Every scope of adopted engines on this host."""
    return of(systemd.show((ADOPTED_SCOPES,)))


def ended(trail: Iterable[Mapping[str, object]], there: Iterable[str]) -> tuple[str, ...]:
    """The scopes into which engines were moved since something was deployed or torn down, but for those still `there`.

    `trail`: the audit trail, oldest first; systemd itself forgets a scope with its last process.
    """
    moved: list[str] = []
    for line in trail:
        scopes = line.get("adopted")
        if isinstance(scopes, list):
            moved += map(str, scopes)
        elif generations.has_acted(line):
            moved = []
    left = {*there}
    return tuple(scope for scope in dict.fromkeys(moved) if scope not in left)


def ports(found: tuple[Adopted, ...]) -> frozenset[int]:
    """The ports on which anybody in the scopes listens and that somebody chose.

    Those that ranks drew for each other are nobody's afterwards: the next outgoing connection may have one.
    """
    pids = [pid for scope in found for pid in scope.pids]
    heard = {holder.listener.port for holder in sockets.holders_on((), pids)} if pids else set()
    first, last = sockets.ephemeral_range()
    return frozenset(
        {port for port in heard if not first <= port <= last} | {scope.port for scope in found if scope.port}
    )


def gpu_uuids(found: tuple[Adopted, ...], view: GpuView) -> frozenset[str]:
    """The GPUs on which the driver says that somebody in the scopes has memory."""
    pids = {pid for scope in found for pid in scope.pids}
    return frozenset(gpu.uuid for gpu in view.gpus if any(process.pid in pids for process in gpu.processes))
