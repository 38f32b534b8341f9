"""What is ours, and may therefore be ended: the cgroup of our own unit, or else only the tree of the engine we started.

Everything that this package kills goes through `members`. The cgroup of a shell, a container or a build machine holds
processes of other people, so the cgroup counts only when systemd made it for this very process.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from dsv4ctl import procs
from dsv4ctl.model import Holder, Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Territory:
    """`cgroup` is the unit's own ('' outside systemd); `engine` leads a session that nobody but its tree can be in."""

    cgroup: str
    engine: Identity


def unit_cgroup(cgroup: str, unit: str, environment: Mapping[str, str], pid: int) -> str:
    """The cgroup if all that is in it belongs to us, else ''. All of these must hold:

    1. its last component is the unit of this instance, which is a service or a scope
    2. systemd started us as a unit: it set INVOCATION_ID
    3. we are the process that systemd executed, not a descendant that inherited the variable: SYSTEMD_EXEC_PID is ours
       (set from systemd 248 on, and 249 is the oldest that is supported)
    """
    path = PurePosixPath(cgroup)
    ours = path.is_absolute() and ".." not in path.parts and path.name == unit and path.suffix in (".service", ".scope")
    started = bool(environment.get("INVOCATION_ID")) and environment.get("SYSTEMD_EXEC_PID") == str(pid)
    return cgroup if ours and started else ""


def claim(unit: str, environment: Mapping[str, str]) -> str:
    """`unit_cgroup` of this process as it is now."""
    return unit_cgroup(procs.own_cgroup(), unit, environment, os.getpid())


def members(territory: Territory) -> tuple[Identity, ...]:
    """Whatever lives of ours, without ourselves and our ancestors.

    The cgroup is asked for anew each time: were we moved out of it, it would no longer be ours to empty.
    """
    own = territory.cgroup if territory.cgroup and procs.own_cgroup() == territory.cgroup else ""
    inside = (procs.identity(pid) for pid in procs.cgroup_pids(own)) if own else ()
    found = {process for process in inside if process is not None} | tree(territory.engine)
    spared = {1, os.getpid(), *(ancestor.pid for ancestor in procs.ancestors(os.getpid()))}
    return tuple(sorted(p for p in found if p.pid not in spared and procs.alive(p)))


def tree(engine: Identity) -> set[Identity]:
    """The engine, its descendants and its session; nothing once the engine's pid belongs to another process.

    The engine is reaped only after its tree has ended: until then neither its pid nor its session id, which is the same
    number, can pass to anybody else.
    """
    if procs.identity(engine.pid) != engine or engine.pid == os.getsid(0):
        return set()
    session = (procs.identity(s.pid) for pid in procs.pids() if (s := procs.stat(pid)) and s.session == engine.pid)
    return {engine, *procs.descendants(engine.pid), *(process for process in session if process is not None)}


def owns(territory: Territory, holder: Holder) -> bool:
    """Whether a listener is ours: by the processes that hold it now, else by the cgroup that its socket was made in.

    In this order, for a process that was moved out of a unit keeps the sockets that it made there.
    """
    if not holder.processes:
        return procs.within(holder.listener.cgroup, territory.cgroup)
    if any(procs.within(process.cgroup, territory.cgroup) for process in holder.processes):
        return True
    below = tree(territory.engine)
    return any(process.identity in below for process in holder.processes)
