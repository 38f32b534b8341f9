"""Host x Step -> effect, or a Problem. Each step verifies itself; a step that finds the world changed fails."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias, assert_never

from dsv4ctl import ending, installed, proof, settle, shm, sockets, standing, store, systemd
from dsv4ctl.free import AwaitGpus, EndTree, RemoveSegment
from dsv4ctl.host import Host
from dsv4ctl.model import ActiveState, Instance, Phase, RunState, SuperviseExit, Unit
from dsv4ctl.names import instance_of
from dsv4ctl.plan import DOWN, UP
from dsv4ctl.problems import NotReady
from dsv4ctl.steps import Disable, Enable, Keep, Reach, Reload, RemoveFile, ResetFailed, Start, Step, Stop, WriteFile

# One `systemctl show` takes 7-9 ms. Near the end of a start looks are so close that readiness is found at once; before
# that, for up to an hour, they must not cost the engine a part of a core.
LOOK_EVERY_S = 0.1
LOOK_CLOSELY_S = 0.015
# A queued start job is taken up at once; a unit that is still down after this was refused or stopped by somebody.
TAKE_UP_S = 3.0


@dataclass(frozen=True, slots=True)
class Doing:
    """A step is begun."""

    step: Step


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a unit that is starting or stopping. `state` is None before its supervisor said anything."""

    unit: Unit
    state: RunState | None


@dataclass(frozen=True, slots=True)
class Waits:
    """What a step that takes time waits for, in words."""

    words: str


@dataclass(frozen=True, slots=True)
class Warns:
    """What the operator should know before anything is done."""

    words: str


Said: TypeAlias = Doing | Seen | Waits | Warns
Tell: TypeAlias = Callable[[Said], None]


def carry_out(host: Host, steps: Iterable[Step], tell: Tell) -> None:
    """Do every step in order, telling each before it is begun; trees that follow each other are ended side by side.

    Raises the Problem of the first that fails.
    """
    for _, group in groupby(steps, key=lambda step: isinstance(step, EndTree)):
        todo = tuple(group)
        if trees := tuple(step for step in todo if isinstance(step, EndTree)):
            _end(host, trees, tell)
            continue
        for step in todo:
            tell(Doing(step))
            one(host, step, tell)


def one(host: Host, step: Step, tell: Tell) -> None:
    """Do one step and look whether it holds."""
    match step:
        case WriteFile():
            store.write_atomic(host.paths.under(step.path), step.text, mode=0o644)
        case RemoveFile():
            host.paths.under(step.path).unlink(missing_ok=True)
        case Reload():
            systemd.daemon_reload()
        case ResetFailed():
            systemd.reset_failed(step.unit)
        case Stop():
            _stop(host, step.unit, tell)
        case Start():
            _start(host, step.instance, tell)
        case Reach():
            systemd.start(step.unit, block=True)
        case Enable():
            systemd.enable(step.unit)
        case Disable():
            systemd.disable(step.unit)
        case Keep():
            host.store.releases.keep(step.release)
        case EndTree():
            _end(host, (step,), tell)
        case AwaitGpus():
            settle.await_gpus(step, host.clock, lambda text: tell(Waits(text)))
        case RemoveSegment():
            shm.remove(step.segment)
        case _:
            assert_never(step)


def _end(host: Host, trees: tuple[EndTree, ...], tell: Tell) -> None:
    for step in trees:
        tell(Doing(step))
    ending.end(trees, host.clock, lambda now: tell(Waits(str(now))))


def _stop(host: Host, unit: str, tell: Tell) -> None:
    """Have systemd stop the unit and follow it down. Its TimeoutStopSec bounds this; no second timer runs here."""
    systemd.stop(unit, block=False)
    was_going = False
    while (seen := systemd.show((unit,))[unit]).active not in DOWN:
        if was_going and seen.active in UP:
            raise NotReady(
                f"cannot stop {unit}: somebody starts it again meanwhile", hint=f"journalctl -u {unit} -n 50"
            )
        was_going = was_going or seen.active is ActiveState.DEACTIVATING
        tell(Seen(seen, installed.run_state(host, instance_of(unit))))
        host.clock.sleep(LOOK_CLOSELY_S if seen.main_pid == 0 else LOOK_EVERY_S / 2)


def _start(host: Host, instance: Instance, tell: Tell) -> None:
    """Start the unit and follow it until it is active with this instance, or it is clear that it will not be."""
    before = systemd.show((instance.unit,))[instance.unit]
    began = host.clock.now()
    # What the supervisor of an earlier start said last still lies there; a start that is under way is followed.
    since = 0.0 if before.active is ActiveState.ACTIVATING else host.clock.wall()
    systemd.start(instance.unit, block=False)
    while True:
        unit = systemd.show((instance.unit,))[instance.unit]
        state = _fresh(installed.run_state(host, instance.name), instance, since)
        tell(Seen(unit, state))
        if unit.active is ActiveState.ACTIVE:
            _proved(host, instance, tell)
            return
        if _is_over(unit, before, host.clock.now() - began):
            _give_up(host, instance, (unit, state), tell)
        host.clock.sleep(_pace_s(state))


def _proved(host: Host, instance: Instance, tell: Tell) -> None:
    """Prove from outside what the supervisor proved from inside; one that cannot be proved is stopped, not kept."""
    try:
        proof.of(instance)
    except NotReady:
        _stop(host, instance.unit, tell)
        raise


def _fresh(state: RunState | None, instance: Instance, since: float) -> RunState | None:
    """The state if it is of this instance and of a start at or after `since`."""
    return state if state is not None and state.digest == instance.digest and state.started_at >= since else None


def _pace_s(state: RunState | None) -> float:
    return LOOK_CLOSELY_S if state is not None and state.phase in (Phase.WARMUP, Phase.PROOF) else LOOK_EVERY_S


def _is_over(unit: Unit, before: Unit, waited_s: float) -> bool:
    """Failed, put down for an automatic restart (a deploy does not wait for luck), or never taken up."""
    if unit.active is ActiveState.FAILED or unit.sub.startswith("auto-restart") or unit.restarts > before.restarts:
        return True
    return unit.active is ActiveState.INACTIVE and waited_s > TAKE_UP_S


def _give_up(host: Host, instance: Instance, last: tuple[Unit, RunState | None], tell: Tell) -> None:
    """Stop the unit, so that systemd does not go on starting what never served, and say why."""
    unit, state = last
    _stop(host, instance.unit, tell)
    # What was seen last may have been the wait for a restart, which there is none any more.
    ended = unit.active if unit.active is ActiveState.INACTIVE else ActiveState.FAILED
    found = standing.of(replace(unit, active=ended, sub="", main_pid=0), state)
    said = found.words if found.state == "failed" else "it was stopped by somebody else while it was starting"
    if state is not None and state.exit == SuperviseExit.PORT:
        said += _strangers(instance)
    raise NotReady(f"cannot bring up {instance.unit}: {said}", hint=found.advice or f"dsv4ctl logs {instance.name}")


def _strangers(instance: Instance) -> str:
    """Who listens on the port now that nothing of ours does; the supervisor may not look into others' processes."""
    holders = sockets.holders(instance.port)
    return f"; on port {instance.port} there is {sockets.words(holders[0])}" if holders else ""
