"""Socket -> the processes that have it open, by its cgroup, by /proc, or by who is on his way out. Judges nobody."""

from collections.abc import Iterable

from dsv4ctl import census, procs, threads
from dsv4ctl.model import Holder, Listener

# A cgroup that tells nothing of the owner: everybody's, or systemd's own, which makes sockets for others to inherit.
TELLS_NOTHING = frozenset({"", "/", "/init.scope"})
# Processes that fork and end hand a socket on from one to the next, and a look at one after the other may meet none
# that still has it. A look at a cgroup takes a millisecond or so; one at all processes is not repeated here.
LOOKS = 5


def held(found: Iterable[Listener]) -> tuple[Holder, ...]:
    """Sockets with the processes that have them open, which are looked for in their own cgroups first."""
    every = tuple(found)
    having: dict[int, tuple[int, ...]] = {}
    for cgroup in {listener.cgroup for listener in every} - TELLS_NOTHING:
        having |= _inside(cgroup, {listener.inode for listener in every if listener.cgroup == cgroup})
    if missing := {listener.inode for listener in every} - having.keys() - {0}:
        having |= of(missing, procs.pids())
    if nobodys := [listener for listener in every if listener.inode and listener.inode not in having]:
        having |= _left_by(nobodys)
    return tuple(holder(listener, having.get(listener.inode, ())) for listener in every)


def _inside(cgroup: str, inodes: set[int]) -> dict[int, tuple[int, ...]]:
    """Who in a cgroup has these sockets open, by inode."""
    found: dict[int, tuple[int, ...]] = {}
    before: tuple[int, ...] = ()
    for _ in range(LOOKS):
        # Whoever has been looked into and is still there has not got it; where nobody came nobody is looked into again.
        if inodes <= found.keys() or (pids := procs.cgroup_pids(cgroup)) == before:
            break
        found |= of(inodes - found.keys(), pids)
        before = pids
    return found


def _left_by(nobodys: Iterable[Listener]) -> dict[int, tuple[int, ...]]:
    """Whose sockets that nobody has may be, by inode: a process on its way out has given up the list of its files, and
    the files only one by one. While a driver takes its time over one of them, the others stay as they are.

    Only where everybody's files may be looked into, as the first process's: else their owner may just be hidden.
    """
    if not census.sees_everybody():
        return {}
    leaving = [pid for pid in procs.pids() if threads.is_exiting(pid) and not any(census.open_files(pid))]
    return {one.inode: tuple(near) for one in nobodys if (near := _near(one, leaving))}


def _near(listener: Listener, pids: list[int]) -> list[int]:
    """Those of the cgroup that a socket was made in, or all: a process may have been moved since."""
    inside = frozenset(procs.cgroup_pids(listener.cgroup)) if listener.cgroup not in TELLS_NOTHING else frozenset()
    return [pid for pid in pids if pid in inside] or pids


def holder(listener: Listener, pids: Iterable[int]) -> Holder:
    """A socket with the processes that have it open, and the unit of theirs."""
    processes = tuple(filter(None, map(procs.read, pids)))
    # An inherited socket belongs to whoever has it now, not to the cgroup it was made in (socket units: that of pid 1).
    cgroups = [process.cgroup for process in processes if process.pid != 1] or [listener.cgroup]
    return Holder(listener=listener, processes=processes, unit=procs.unit_of_cgroup(cgroups[0]))


def of(inodes: Iterable[int], pids: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The pids among `pids` that have one of these sockets open, by inode; an inode that nobody has is left out."""
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {}
    for pid in pids:
        for link in census.open_files(pid):
            if inode := links.get(link):
                found.setdefault(inode, set()).add(pid)
    return {inode: tuple(sorted(holding)) for inode, holding in found.items()}
