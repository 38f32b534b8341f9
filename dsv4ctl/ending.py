"""Ends trees of strays side by side: all are caught, then told to end, a limit each, KILL, look again until empty."""

import math
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from typing_extensions import override

from dsv4ctl import census, pidfd, procs, sockets, systemd, threads, who
from dsv4ctl.blame import words
from dsv4ctl.catch import Everyone, Net
from dsv4ctl.clock import Clock
from dsv4ctl.free import EndTree
from dsv4ctl.model import ActiveState, Identity
from dsv4ctl.problems import LeftOver

# A worker ends with its main process or a moment after; one that does not has lost it.
ORPHANED_S = 1.0
# A look at everybody takes tens of milliseconds, so where nothing happens looks become rarer: while a server drains,
# and more so while one that was killed waits for the driver.
LOOK_EVERY_S, DRAINS_EVERY_S, STUCK_EVERY_S = 0.02, 0.1, 0.5
LOOK_AT_SERVICES_EVERY_S = 0.1
SHOWN = 6
STUCK = "a process in state D waits for the kernel or a driver: look at `dmesg`, or reboot the host"
DEAF = "a process in state R is inside a system call that looks at no signal, and ends with it: try again later"
DOWN = frozenset({ActiveState.INACTIVE, ActiveState.FAILED})


@dataclass(frozen=True, slots=True)
class Ending:
    """What trees that are being ended look like now: who of them is left, and whether any of it has been killed."""

    left: tuple[Identity, ...] = ()
    killed: bool = False

    def plus(self, other: "Ending") -> "Ending":
        """Both together."""
        return Ending((*self.left, *other.left), self.killed or other.killed)

    @override
    def __str__(self) -> str:
        """`killed, 1 left: pid 42 (python, state D in request_wait_answer)`."""
        if not self.left:
            return "gone"
        named = "; ".join(filter(None, map(state, self.left[:SHOWN]))) + ("; …" if len(self.left) > SHOWN else "")
        return f"{'killed' if self.killed else 'told to end'}, {len(self.left)} left: {named}"


Tell = Callable[[Ending], None]
# Takes a look at everybody, and gives what is left of one tree; its value is who outlived its limits.
Course = Generator[Ending, Everyone, tuple[Identity, ...]]


def end(steps: Sequence[EndTree], clock: Clock, tell: Tell) -> None:
    """End the trees of all steps, and look until none of them is left.

    Raises LeftOver naming who cannot be ended, why, and what it holds.
    """
    with ExitStack() as closing:
        courses: list[Course] = []
        for step in steps:
            if step.tree.leaving:
                courses.append(_leaving(clock, step))
                continue
            closing.callback((net := Net(step.tree)).close)
            courses.append(_service(net, clock, step) if _is_service(step) else _processes(net, clock, step))
        left = _side_by_side(courses, clock, tell)
    if left:
        held = {identity: step.tree.holds for step in steps for identity in step.tree.members}
        named = "; ".join(survivor(identity, held.get(identity, ())) for identity in left)
        raise LeftOver(
            f"cannot end {len(left)} process{'es' if len(left) > 1 else ''}: {named}",
            hint=STUCK if any(threads.doing(i.pid)[0] == "D" for i in left) else DEAF,
            details={"survivors": tuple(map(survivor_values, left))},
        )


def state(process: Identity) -> str:
    """One of those that are waited for: what it does, and what the kernel has it wait for; '' when it is gone."""
    found = procs.stat(process.pid)
    if found is None or found.start_ticks != process.start_ticks:
        return ""
    return f"pid {process.pid} ({found.comm}, {threads.words(process.pid)})"


def survivor(process: Identity, held: tuple[str, ...] = ()) -> str:
    """One that outlived SIGKILL: who it is, its state, what the kernel has it wait for, and what it still holds.

    `held`: what its tree had before, in words, for GPUs that can no longer be seen.
    """
    found = procs.read(process.pid)
    if found is None or found.identity != process:
        return f"pid {process.pid} is on its way out"
    seen = holdings(process)
    if threads.is_exiting(process.pid) and not any("nvidia" in word for word in seen):
        seen += tuple(f"its tree {word} when it was found" for word in held if "GPU" in word)
    return ", ".join((f"{who.words(found)} is in {threads.words(process.pid)}", *seen))


def survivor_values(process: Identity) -> dict[str, object]:
    """The same for --json; of one that is on its way out its pid alone."""
    found = procs.read(process.pid)
    if found is None or found.identity != process:
        return {"pid": process.pid}
    state_, waits = threads.doing(process.pid)
    ports, nodes = _kept(process)
    return {**words.process_values(found), "state": state_, "waits_in": waits, "ports": ports, "devices": nodes}


def holdings(process: Identity) -> tuple[str, ...]:
    """What a process keeps from others: the ports that it listens on, and the GPU devices that it has open."""
    ports, nodes = _kept(process)
    return (*(f"listens on port {port}" for port in ports), *([f"has {', '.join(nodes)} open"] if nodes else []))


def _kept(process: Identity) -> tuple[list[int], list[str]]:
    holders = sockets.holders_on((), (process.pid,))
    if not holders and threads.is_exiting(process.pid):
        # Its files are closed one by one, and none of them is on its list any more.
        every = sockets.holders_on(listener.port for listener in sockets.listeners())
        holders = tuple(holder for holder in every if process in (p.identity for p in holder.processes))
    return sorted({holder.listener.port for holder in holders}), sorted(census.device_nodes(process.pid))


def _side_by_side(courses: Iterable[Course], clock: Clock, tell: Tell) -> tuple[Identity, ...]:
    """Go on with every course, look by look, until all are over; returns whoever outlived them."""
    going, outlived, seen, since = list(courses), list[Identity](), Ending(), clock.now()
    # All are caught before the first of them is told to end.
    for course in going:
        next(course)
    while going:
        everyone, now = census.everything(), Ending()
        for course in tuple(going):
            try:
                now = now.plus(course.send(everyone))
            except StopIteration as over:
                going.remove(course)
                outlived += over.value
        tell(now)
        if now.left != seen.left:
            seen, since = now, clock.now()
        if going:
            clock.sleep(pace_s(clock.now() - since, killed=now.killed))
    return tuple(outlived)


def pace_s(unchanged_s: float, *, killed: bool) -> float:
    """How long until everybody is looked at again, when nothing has changed for so long."""
    return min(max(LOOK_EVERY_S, unchanged_s / 20), STUCK_EVERY_S if killed else DRAINS_EVERY_S)


def _processes(net: Net, clock: Clock, step: EndTree) -> Course:
    """TERM to the root; KILL to everything when its time is over, or when its workers have lost it."""
    net.adopt()
    everyone = yield Ending()
    root, left = net.tree.root.identity, net.look(everyone)
    net.ours = pidfd.signal(root, signal.SIGTERM)
    kill_at, give_up_at = clock.now() + (step.term_s if net.ours else 0.0), math.inf
    while left or not net.is_gone():
        now = clock.now()
        if root not in left or threads.is_killed(root.pid):
            kill_at = min(kill_at, now + ORPHANED_S)
        if now >= give_up_at:
            return left
        if now >= kill_at:
            # Counted from the first KILL: on a busy host a look may come later than the whole limit.
            give_up_at = min(give_up_at, now + step.kill_s)
            net.kill(left)
        left = net.look((yield Ending(left, now >= kill_at)))
    return ()


def _service(net: Net, clock: Clock, step: EndTree) -> Course:
    """A service is stopped through systemd, or it comes back."""
    yield Ending()
    unit = step.tree.unit
    systemd.stop(unit, block=False)
    kill_at, give_up_at, look_at, down = clock.now() + step.term_s, math.inf, clock.now(), False
    while True:
        now = clock.now()
        if now >= look_at:
            look_at, down = now + LOOK_AT_SERVICES_EVERY_S, systemd.show((unit,))[unit].active in DOWN
        left = tuple(i for i in step.tree.members if procs.alive(i))
        if (down and not left) or now >= give_up_at:
            return left
        if now >= kill_at:
            give_up_at = min(give_up_at, now + step.kill_s)
            systemd.kill(unit)
        if down:
            net.kill(left)
        yield Ending(left, now >= kill_at)


def _leaving(clock: Clock, step: EndTree) -> Course:
    """One that is on its way out is only waited for."""
    yield Ending()
    give_up_at = clock.now() + step.kill_s
    while left := tuple(i for i in step.tree.members if procs.alive(i)):
        if clock.now() >= give_up_at:
            return left
        yield Ending(left, killed=True)
    return ()


def _is_service(step: EndTree) -> bool:
    return step.tree.unit.endswith(".service")
