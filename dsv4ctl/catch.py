"""Who belongs to a tree of strays, and what holds it together: a scope of systemd's, else looking again and again."""

import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from dsv4ctl import census, pidfd, procs, systemd
from dsv4ctl.blame import Tree
from dsv4ctl.model import Identity, Process
from dsv4ctl.problems import CannotRun
from dsv4ctl.procstat import Stat

# Between the look and the call to systemd a process of the tree may end or fork, and the call fails or misses it.
ADOPTIONS = 5
MORE_LOOKS = 8

Everyone = Mapping[int, Process]


@dataclass(slots=True)
class Net:
    """Everything that is known of a tree, and what is to catch the rest.

    The state of one ending: `known` and `made` only grow. `made`: every scope that was asked for, with the pids that it
    was asked for. `scope`: the one that holds the tree and nobody else, '' for none. `ours`: its root was still there
    to be told to end.
    """

    tree: Tree
    scope: str = ""
    made: dict[str, frozenset[int]] = field(default_factory=dict)
    known: set[Identity] = field(default_factory=set)
    leaders: set[Identity] = field(default_factory=set)
    ours: bool = False
    began_ticks: int = field(default_factory=procs.now_ticks)

    def look(self, everyone: Everyone) -> tuple[Identity, ...]:
        """Who of the tree lives now, whatever came to it since the last look included."""
        self.known |= {self.tree.root.identity, *self.tree.members}
        self.known |= {everyone[pid].identity for pid in _inside(self.scope) if pid in everyone}
        below = _below(self.known, self.leaders, everyone)
        below |= {p.identity for p in everyone.values() if p.identity not in self.known and self._is_fork(p)}
        self.known |= below - _spared(everyone)
        self.leaders |= {i for i in self.known if _is(i, everyone) and _leads(everyone[i.pid])}
        return tuple(sorted(i for i in self.known if _is(i, everyone) and procs.alive(i)))

    def adopt(self) -> None:
        """Move what lives of the tree into a scope, which catches all forks; without one, looking again has to do."""
        if self.tree.unit:
            self.scope = self.tree.unit
            return
        name = f"dsv4ctl-ends-{self.tree.root.pid}-{self.tree.root.identity.start_ticks}"
        for number in range(ADOPTIONS):
            if not (left := self.look(census.everything())):
                continue
            scope = f"{name}-{number}.scope"
            self.made[scope] = frozenset(i.pid for i in left)
            if self._is_caught(scope):
                self.scope = scope
                return

    def kill(self, left: Iterable[Identity]) -> None:
        """KILL to everything. Without a scope it is frozen first, or a process that forks fast enough gets away."""
        if self.scope:
            systemd.kill(self.scope)
        else:
            left = {*left, *self._freeze()}
        for identity in left:
            pidfd.signal(identity, signal.SIGKILL)

    def is_gone(self) -> bool:
        """Whether nothing is left, said after a look that found nothing.

        A process that has forked and ended between two lines of a look is in none of them, so a tree that is seen to
        fork, or that went before anybody ended it, is looked at again.
        """
        forks = bool(self.known - {*self.tree.members, self.tree.root.identity}) or not self.ours
        looks = MORE_LOOKS if forks and not self.scope else 0
        return not any(self.look(census.everything()) for _ in range(looks))

    def close(self) -> None:
        """Have systemd notice that scopes of ours are empty, so that nothing of them is shown when we return.

        All that were asked for: a busy systemd may make one after we have given up waiting for it. One that is not
        empty is never stopped, for that would kill who is in it; it goes by itself with its last process.
        """
        for scope, asked in self.made.items():
            with suppress(CannotRun):
                let_out(_inside(scope), asked, self.known)
                if not _inside(scope):
                    systemd.stop(scope, block=True)

    def _is_caught(self, scope: str) -> bool:
        """Have systemd move those whom the scope is for; whether it holds them and nobody else."""
        asked = self.made[scope]
        try:
            systemd.adopt(scope, sorted(asked), description=f"strays of {self.tree.root.comm} that dsv4ctl ends")
            inside = _inside(scope)
        except CannotRun:
            return False
        return bool(inside) and let_out(inside, asked, self.known)

    def _freeze(self) -> set[Identity]:
        """STOP everything, newest first and each as soon as it is seen, until passes find nothing new."""
        stopped: set[Identity] = set()
        spared = _spared(census.everything())
        empty = 0
        while empty < MORE_LOOKS:
            new = {i for pid in reversed(procs.pids()) if (i := self._stopped(pid, stopped, spared)) is not None}
            empty = 0 if new else empty + 1
            stopped |= new
        return stopped

    def _stopped(self, pid: int, stopped: set[Identity], spared: set[Identity]) -> Identity | None:
        """Stop a process if it belongs to the tree and has not been; None otherwise."""
        found = procs.stat(pid)
        if found is None or found.ended:
            return None
        identity = Identity(procs.boot_id(), found.pid, found.start_ticks)
        if identity in stopped or identity in spared:
            return None
        belongs = identity in self.known or found.parent_pid in {i.pid for i in stopped} or self._is_fork(found)
        if not belongs or not pidfd.signal(identity, signal.SIGSTOP):
            return None
        self.known.add(identity)
        return identity

    def _is_fork(self, found: Process | Stat) -> bool:
        """Whether a process was forked in the tree since its ending began, though its parent is gone already.

        Born since then, in a process group of the tree, and an engine by its environment: all three.
        """
        ticks = found.identity.start_ticks if isinstance(found, Process) else found.start_ticks
        if ticks < self.began_ticks or found.group not in self.tree.groups:
            return False
        return bool(census.environment_of(found.pid))


def let_out(inside: Iterable[int], asked: Iterable[int], known: Iterable[Identity]) -> bool:
    """Put strangers in a scope of ours back into the cgroup of their parent; whether none is left in it.

    systemd is given pids. One that ended between our look and its move may have passed its number on, and then it is
    somebody else who was moved: whoever has a number that was asked for and is not known.
    """
    mine, numbers = frozenset(known), frozenset(asked)
    there = {pid: identity for pid in inside if (identity := procs.identity(pid)) and procs.alive(identity)}
    strangers = [identity for pid, identity in there.items() if pid in numbers and identity not in mine]
    back = [_put_back(stranger, set(there.values())) for stranger in strangers]
    return all(back)


def _put_back(stranger: Identity, inside: set[Identity]) -> bool:
    """Whether he is where his parent is, he and what he has forked here. With the first process nobody is at home."""
    found = procs.stat(stranger.pid)
    if found is None or found.parent_pid <= 1:
        return False
    try:
        home = procs.cgroup_of(found.parent_pid)
    except procs.GONE:
        return False
    moved = [procs.move(one, home) for one in (stranger, *(inside & {*procs.descendants(stranger.pid)}))]
    return all(moved)


def _inside(scope: str) -> tuple[int, ...]:
    return procs.cgroup_pids(systemd.show((scope,))[scope].cgroup) if scope else ()


def _below(known: Iterable[Identity], leaders: set[Identity], everyone: Everyone) -> set[Identity]:
    """Whatever descends from living members, and the groups and sessions that members lead or have led.

    The number of a leader that has ended is not given to another process while its group or session exists.
    """
    found = {i.pid for i in known if _is(i, everyone)}
    led = {i.pid for i in leaders if i.pid not in everyone or _is(i, everyone)}
    size = -1
    while size != len(found):
        size = len(found)
        found |= {pid for pid, p in everyone.items() if p.parent_pid in found or p.group in led or p.session in led}
    return {everyone[pid].identity for pid in found}


def _leads(process: Process) -> bool:
    return process.pid in (process.group, process.session)


def _spared(everyone: Everyone) -> set[Identity]:
    """Ourselves with our ancestors and our children, the first process and the kernel's own."""
    us = procs.ourselves()
    others = {p.identity for p in everyone.values() if p.pid == 1 or p.kernel or p.parent_pid == us.pid}
    return {us, *procs.ancestors(us.pid)} | others


def _is(identity: Identity, everyone: Everyone) -> bool:
    return identity.pid in everyone and everyone[identity.pid].identity == identity
