"""Ends trees of strays: caught in a scope of their own, so that no fork escapes, TERM, a limit, KILL, look again."""

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dsv4ctl import census, procs, systemd
from dsv4ctl.blame import Tree, words
from dsv4ctl.clock import Clock
from dsv4ctl.model import ActiveState, Identity, Process
from dsv4ctl.problems import CannotRun, LeftOver, Problem
from dsv4ctl.procstat import Stat

# From KILL to the end: a process inside a driver call takes its time, and is not to be waited for for ever.
KILL_S = 30.0
# A worker ends with its main process or a moment after; one that does not has lost it.
ORPHANED_S = 1.0
LOOK_EVERY_S = 0.02
# Between the look and the call to systemd a process of the tree may end or fork, and the call fails or misses it.
ADOPTIONS = 5
MORE_LOOKS = 8
DOWN = frozenset({ActiveState.INACTIVE, ActiveState.FAILED})


@dataclass(frozen=True, slots=True)
class Ending:
    """What a tree that is being ended looks like now: who of it is left, and whether it has been killed."""

    left: tuple[Identity, ...]
    killed: bool


Tell = Callable[[Ending], None]


def end(tree: Tree, clock: Clock, term_s: float, tell: Tell) -> None:
    """End a tree, and look until none of it is left. `term_s`: how long it may take to end by itself.

    Raises LeftOver naming who cannot be ended, and why.
    """
    if tree.unit.endswith(".service"):
        left = _stop_service(tree, clock, term_s, tell)
    else:
        left = _end_processes(Net(tree), clock, term_s, tell)
    if left:
        raise LeftOver(
            f"cannot end the tree of {words.who(tree.root)}: " + "; ".join(map(survivor, left)),
            hint="a process in state D waits for the kernel or a driver: look at `dmesg`, or reboot the host",
        )


def survivor(process: Identity) -> str:
    """One that outlived SIGKILL: its state, what the kernel has it wait for, and what it still holds."""
    found = procs.read(process.pid)
    if found is None or found.identity != process:
        return f"pid {process.pid} is on its way out"
    waits = _wait_channel(process.pid)
    held = sorted(census.device_nodes(process.pid))
    holds = f", has {', '.join(held)} open" if held else ""
    return f"{words.who(found)} is in state {found.state}{f' in {waits}' if waits else ''}{holds}"


@dataclass(slots=True)
class Net:
    """Everything that is known of a tree, and what is to catch the rest: its scope, else looking again.

    The state of one ending: `known` and `made` only grow. `made`: every scope that was asked for. `ours`: its root was
    still there to be told to end.
    """

    tree: Tree
    scope: str = ""
    made: list[str] = field(default_factory=list)
    known: set[Identity] = field(default_factory=set)
    leaders: set[Identity] = field(default_factory=set)
    ours: bool = False
    began_ticks: int = field(default_factory=procs.now_ticks)

    def look(self) -> tuple[Identity, ...]:
        """Who of the tree lives now, whatever came to it since the last look included."""
        everyone = census.everything()
        self.known |= {self.tree.root.identity, *self.tree.members}
        self.known |= {everyone[pid].identity for pid in self._in_scope() if pid in everyone}
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
        name = f"dsv4ctl-ends-{self.tree.root.pid}-{self.tree.root.identity.start_ticks}.scope"
        for number in range(ADOPTIONS):
            if not (left := self.look()):
                continue
            self.made.append(scope := name.replace(".scope", f"-{number}.scope"))
            if _adopted(scope, left, self.tree.root.comm):
                self.scope = scope
                return

    def kill(self, left: Iterable[Identity]) -> None:
        """KILL to everything. Without a scope it is frozen first, or a process that forks fast enough gets away."""
        if self.scope:
            systemd.kill(self.scope)
        else:
            left = {*left, *self._freeze()}
        for identity in left:
            procs.signal(identity, signal.SIGKILL)

    def close(self) -> None:
        """Have systemd notice that our own scopes are empty, so that nothing of them is shown when we return.

        Of all that were asked for: a busy systemd may make one after we have given up waiting for it.
        """
        for scope in self.made:
            systemd.stop(scope, block=True)

    def is_gone(self) -> bool:
        """Whether nothing is left, said after a look that found nothing.

        A process that has forked and ended between two lines of a look is in none of them, so a tree that is seen to
        fork, or that went before anybody ended it, is looked at again.
        """
        forks = bool(self.known - {*self.tree.members, self.tree.root.identity}) or not self.ours
        return not any(self.look() for _ in range(MORE_LOOKS if forks and not self.scope else 0))

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
        if not belongs or not procs.signal(identity, signal.SIGSTOP):
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

    def _in_scope(self) -> tuple[int, ...]:
        return procs.cgroup_pids(systemd.show((self.scope,))[self.scope].cgroup) if self.scope else ()


def _end_processes(net: Net, clock: Clock, term_s: float, tell: Tell) -> tuple[Identity, ...]:
    """TERM to the root; KILL to everything when its time is over, or when its workers have lost it."""
    net.adopt()
    root, left = net.tree.root.identity, net.look()
    net.ours = procs.signal(root, signal.SIGTERM)
    kill_at = clock.now() + (term_s if net.ours else 0.0)
    while True:
        now = clock.now()
        tell(Ending(left, now >= kill_at))
        if now >= kill_at + KILL_S:
            return left
        if not left and net.is_gone():
            net.close()
            return ()
        if root not in left:
            kill_at = min(kill_at, now + ORPHANED_S)
        if now >= kill_at:
            net.kill(left)
        clock.sleep(LOOK_EVERY_S)
        left = net.look()


def _stop_service(tree: Tree, clock: Clock, term_s: float, tell: Tell) -> tuple[Identity, ...]:
    """A service is stopped through systemd, or it comes back."""
    systemd.stop(tree.unit, block=False)
    kill_at = clock.now() + term_s
    while True:
        now, down = clock.now(), systemd.show((tree.unit,))[tree.unit].active in DOWN
        left = tuple(i for i in tree.members if procs.alive(i))
        tell(Ending(left, now >= kill_at))
        if (down and not left) or now >= kill_at + KILL_S:
            return left
        if now >= kill_at:
            systemd.kill(tree.unit)
        if down:
            Net(tree).kill(left)
        clock.sleep(LOOK_EVERY_S * 5)


def _adopted(scope: str, members: tuple[Identity, ...], comm: str) -> bool:
    """Whether systemd has moved them. Raises Problem when a pid changed hands meanwhile and a stranger was moved."""
    pids = {identity.pid for identity in members}
    try:
        systemd.adopt(scope, sorted(pids), description=f"strays of {comm} that dsv4ctl ends")
        inside = procs.cgroup_pids(systemd.show((scope,))[scope].cgroup)
    except CannotRun:
        return False
    there = {i for pid in inside if pid in pids and (i := procs.identity(pid))}
    if strangers := there - set(members):
        raise Problem(
            f"cannot end pid {min(strangers).pid}: its number belongs to another process now", hint="try again"
        )
    return bool(inside)


def _below(known: Iterable[Identity], leaders: set[Identity], everyone: dict[int, Process]) -> set[Identity]:
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


def _spared(everyone: dict[int, Process]) -> set[Identity]:
    """Ourselves with our ancestors and our children, the first process and the kernel's own."""
    us = procs.ourselves()
    others = {p.identity for p in everyone.values() if p.pid == 1 or p.kernel or p.parent_pid == us.pid}
    return {us, *procs.ancestors(us.pid)} | others


def _is(identity: Identity, everyone: dict[int, Process]) -> bool:
    return identity.pid in everyone and everyone[identity.pid].identity == identity


def _wait_channel(pid: int) -> str:
    try:
        found = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        return ""
    return "" if found == "0" else found
