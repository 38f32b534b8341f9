"""The tree of a stray: from one process that holds something to everything that must go with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from dsv4ctl import cgroups
from dsv4ctl.blame.scene import Scene
from dsv4ctl.model import Process

Key = TypeVar("Key", int, str)
# States of a process of which nothing is left but its number (proc_pid_stat(5)).
ENDED = frozenset("ZXx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How the processes of a scene hang together. `guarded`: pid -> why it is never ended."""

    scene: Scene
    guarded: Mapping[int, str]
    children: Mapping[int, tuple[int, ...]]
    groups: Mapping[int, tuple[int, ...]]
    sessions: Mapping[int, tuple[int, ...]]
    units: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, scene: Scene, guarded: Mapping[int, str]) -> Self:
        """The links of a scene."""
        processes = scene.processes.values()
        return cls(
            scene=scene,
            guarded=guarded,
            children=_by((p.parent_pid, p.pid) for p in processes),
            groups=_by((p.group, p.pid) for p in processes),
            sessions=_by((p.session, p.pid) for p in processes),
            units=_by((cgroups.unit_of(p.cgroup), p.pid) for p in processes),
        )

    def is_engine(self, pid: int) -> bool:
        """Whether a process runs in an engine's environment, or carries our marker. Absence of both proves nothing."""
        return pid in self.scene.environments or pid in self.scene.marked

    def has_loaded(self, pid: int) -> bool:
        """Whether a process is an engine by more than its interpreter."""
        return self.is_engine(pid) and (pid not in self.scene.bare or pid in self.scene.marked)

    def own_unit(self, process: Process) -> str:
        """The unit that a process is all by itself: '' for a login session, or a service that holds a guarded process.

        On a host without logind whatever is started over ssh lives in the cgroup of ssh.service.
        """
        unit = cgroups.unit_of(process.cgroup)
        if not unit or (unit.endswith(".scope") and not _is_made_for_it(unit, process)):
            return ""
        return "" if any(pid in self.guarded for pid in self.units.get(unit, ())) else unit

    def is_managed(self, process: Process) -> bool:
        """Whether a service manager would start a process again, or somebody installed it as a service."""
        unit = self.own_unit(process)
        return unit.endswith(".service") and not cgroups.is_transient(unit)


def _is_made_for_it(unit: str, process: Process) -> bool:
    """Whether a unit was made for what runs in it now: by systemd-run, or by us when an engine was adopted."""
    return cgroups.is_transient(unit) or cgroups.adopted(process.cgroup) is not None


def _by(pairs: Iterable[tuple[Key, int]]) -> dict[Key, tuple[int, ...]]:
    found: dict[Key, list[int]] = {}
    for key, pid in pairs:
        found.setdefault(key, []).append(pid)
    return {key: tuple(pids) for key, pids in found.items()}


def root_of(links: Links, holder: Process) -> Process:
    """The main process of an engine: the highest parent that is an engine of the same user in the same job or session.

    Whoever started the engine (a shell, a script, a notebook of another environment) is none and stays; nor is a prompt
    of the engine's own interpreter, for a main process has loaded its libraries before it has children.
    """
    root = holder
    while (parent := links.scene.processes.get(root.parent_pid)) and _leads(links, parent, root):
        root = parent
    return root


def _leads(links: Links, parent: Process, child: Process) -> bool:
    return (
        not _stays_out(links, parent.pid, frozenset())
        and parent.uid == child.uid
        and links.has_loaded(parent.pid)
        and child.session in (parent.session, child.pid)
        and cgroups.unit_of(parent.cgroup) == cgroups.unit_of(child.cgroup)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a tree ends. `spared`: never joined. `heads`: orphans whose fellow orphans are remains of the same engine;
    `busy`: processes that hold, or whose children hold, what nobody asked for, so that they are no remains."""

    spared: frozenset[int] = frozenset()
    heads: frozenset[int] = frozenset()
    busy: frozenset[int] = frozenset()


def members_of(links: Links, start: Iterable[int], limits: Limits) -> frozenset[int]:
    """Everything that goes with `start`, which is not guarded; never a guarded or a spared process.

    1. whatever descends from a member
    2. the process group and the session that a member leads
    3. remains of an engine whose main process has ended: beside a head, orphans of its user and process group that run
       in an engine's environment and hold nothing else
    4. whatever shares the transient unit, or the scope of an adopted engine, that a member is
    """
    found: set[int] = set()
    new = {pid for pid in start if pid in links.scene.processes}
    while new:
        found |= new
        near = {pid for member in new for pid in _near(links, links.scene.processes[member], limits)}
        new = {pid for pid in near - found if not _stays_out(links, pid, limits.spared)}
    return frozenset(found)


def _near(links: Links, member: Process, limits: Limits) -> Iterable[int]:
    yield from links.children.get(member.pid, ())
    yield from links.groups.get(member.pid, ())
    yield from links.sessions.get(member.pid, ())
    # 0 is a group whose leader lives outside our pid namespace, and so everybody's who was sent in from there.
    if member.pid in limits.heads and member.group:
        peers = (pid for pid in links.groups.get(member.group, ()) if pid not in limits.busy)
        yield from (pid for pid in peers if _is_remains(links, links.scene.processes[pid], member))
    if (unit := links.own_unit(member)) and _is_made_for_it(unit, member):
        yield from links.units[unit]


def _is_remains(links: Links, peer: Process, member: Process) -> bool:
    return peer.uid == member.uid and links.is_engine(peer.pid) and is_orphan(links, peer)


def is_orphan(links: Links, process: Process) -> bool:
    """Whether the parent of a process has ended: it hangs at the first process, or at a user's service manager.

    One that is killed keeps its children for as long as its threads take to end, which with a GPU may be seconds.
    """
    parent = links.scene.processes.get(process.parent_pid)
    return parent is None or parent.pid == 1 or parent.comm == "systemd" or _has_ended(parent)


def _has_ended(process: Process) -> bool:
    return process.dying or process.state in ENDED


def _stays_out(links: Links, pid: int, spared: frozenset[int]) -> bool:
    """Guarded, spared, unknown, or in a service: that is stopped through systemd, never signalled behind its back."""
    process = links.scene.processes[pid]
    unknown = not process.pid_namespace or not process.net_namespace
    return pid in links.guarded or pid in spared or unknown or links.is_managed(process)
