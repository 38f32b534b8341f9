"""Who listens on the instance's HTTP port: nobody, its engine, something else of its unit, or an impostor."""

from dataclasses import dataclass
from enum import StrEnum

from dsv4ctl import owners, procs, sockets, threads
from dsv4ctl.model import Holder, Identity, Instance
from dsv4ctl.problems import Problem
from dsv4ctl.supervise import words
from dsv4ctl.supervise.territory import Territory, owns

COMMAND_WIDTH = 60
# The youngest, for a listener that appeared just now is one of them.
SHOWN = 5


class Who(StrEnum):
    """Whose a listener is."""

    NOBODY = "nobody"
    ENGINE = "engine"
    RELATIVE = "relative"
    IMPOSTOR = "impostor"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look found, with the holder in words unless it is the engine itself. `beside`: we listen there, too."""

    who: Who
    words: str = ""
    beside: bool = False

    @property
    def ours(self) -> bool:
        """Whether what answers there belongs to our unit."""
        return self.who in (Who.ENGINE, Who.RELATIVE)


def at_port(instance: Instance, territory: Territory) -> Looked:
    """Look at the HTTP port. An impostor is reported even beside the engine: some clients would reach it instead.

    The engine's main process holds the socket of its server, also when workers share it. Another process of the unit
    that holds it is either a wrapped server or a worker that was given the port by chance; the caller sees which by
    what it answers.
    """
    try:
        holders = [h for h in sockets.holders(instance.port) if sockets.in_the_way(instance.host, h)]
    except (Problem, OSError) as problem:
        return Looked(Who.UNKNOWN, f"cannot see who listens on port {instance.port}: {problem}")
    foreign = [holder for holder in holders if not owns(territory, holder)]
    if foreign:
        return Looked(Who.IMPOSTOR, described(foreign[0]), beside=len(foreign) < len(holders))
    if not holders:
        return Looked(Who.NOBODY)
    if any(p.pid == territory.engine.pid for holder in holders for p in holder.processes):
        return Looked(Who.ENGINE)
    return Looked(Who.RELATIVE, described(holders[0]))


def described(holder: Holder) -> str:
    """A holder as systemctl's one line has room for: pid, user, unit, address and the beginning of its command."""
    if not holder.processes:
        return sockets.words(holder) + suspects(holder)
    return f"{sockets.words(holder)} ({words.one_line(holder.processes[0].command, COMMAND_WIDTH)})"


def one(process: Identity) -> str:
    """A process by its number, name and state, and what it waits for in the kernel."""
    found = procs.read(process.pid)
    return f"pid {process.pid} ({found.comm}, {threads.words(process.pid)})" if found else f"pid {process.pid}"


def suspects(holder: Holder) -> str:
    """Who of a holder's cgroup it may be, where its files may not be looked into; '' when known, or not to be told.

    The unit's sandbox takes CAP_SYS_PTRACE, so the files of processes with more rights than ours are closed to us,
    while their names are not.
    """
    cgroup = holder.listener.cgroup
    if holder.processes or cgroup in owners.TELLS_NOTHING:
        return ""
    found = [process for pid in procs.cgroup_pids(cgroup) if (process := procs.read(pid))]
    shown = ", ".join(f"pid {process.pid} ({process.comm})" for process in found[-SHOWN:])
    more = f" and {len(found) - SHOWN} others" if len(found) > SHOWN else ""
    return f"; there run {shown}{more}" if found else ""
