"""The process trees of our own units at one moment, taken before a stop, and what outlived it."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsv4ctl import pidfd, procs
from dsv4ctl.host import Host
from dsv4ctl.model import HostView, Identity, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTree:
    """The processes of a unit at one moment: those of its cgroup, and whatever descends from them."""

    unit: str
    cgroup: str
    processes: tuple[Identity, ...]


def of(view: HostView) -> tuple[UnitTree, ...]:
    """The process trees of all our units."""
    return tuple(_tree(u) for name, u in sorted(view.units.items()) if name.endswith(".service") and u.cgroup)


def end(
    host: Host, known: Iterable[UnitTree], limit_s: float, tell: Callable[[tuple[Identity, ...]], None]
) -> tuple[Identity, ...]:
    """KILL whatever of the trees outlived its unit, telling who is left meanwhile; returns who outlives the limit."""
    trees = tuple(known)

    def look() -> tuple[Identity, ...]:
        if found := tuple(process for tree in trees for process in left(tree)):
            tell(found)
        return found

    return pidfd.end_all(look, host.clock, limit_s)


def left(tree: UnitTree) -> tuple[Identity, ...]:
    """Who of a tree still lives, and whoever is in its cgroup by now."""
    inside = (i for pid in procs.cgroup_pids(tree.cgroup) if (i := procs.identity(pid)))
    return tuple(sorted({*_alive(tree), *inside}))


def _tree(unit: Unit) -> UnitTree:
    inside = [i for pid in procs.cgroup_pids(unit.cgroup) if (i := procs.identity(pid))]
    below = [i for process in inside for i in procs.descendants(process.pid)]
    # Whoever calls us from within a unit (a shell of a debugger, say) is no part of what may be ended.
    ourselves = {procs.ourselves(), *procs.ancestors(os.getpid())}
    return UnitTree(unit=unit.name, cgroup=unit.cgroup, processes=tuple(sorted({*inside, *below} - ourselves)))


def _alive(tree: UnitTree) -> tuple[Identity, ...]:
    return tuple(process for process in tree.processes if procs.alive(process))
