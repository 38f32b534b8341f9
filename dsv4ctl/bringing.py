"""Brings units up side by side until they are proved, and down; a start that fails ends with the reason in words."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from dsv4ctl import installed, logbook, procs, proof, sockets, standing, systemd
from dsv4ctl.clock import until
from dsv4ctl.due import DOWN, UP
from dsv4ctl.host import Host
from dsv4ctl.model import ActiveState, Instance, Phase, RunState, SuperviseExit, Unit
from dsv4ctl.names import instance_of
from dsv4ctl.problems import NotReady
from dsv4ctl.telling import Seen, Tell, Waits, Wrote

# One `systemctl show` takes 7-9 ms, and for up to an hour looks must not cost the engine a part of a core. In between
# there are glances, of microseconds: near the end of a start at what the supervisors write before they tell systemd, at
# a stop at whether the supervisor is there. So either is found at once.
LOOK_EVERY_S = 0.1
LOOK_CLOSELY_S = 0.015
GLANCE_EVERY_S = 0.004
# A queued start job is taken up at once; a unit that is still down after this was refused or stopped by somebody.
TAKE_UP_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """An instance on its way up: its unit before the start, and since when its supervisor's words count."""

    instance: Instance
    before: Unit
    since: float


@dataclass(frozen=True, slots=True)
class Looked:
    """One look at an instance on its way up."""

    unit: Unit
    state: RunState | None


def up(host: Host, instances: Iterable[Instance], tell: Tell) -> None:
    """Start the units, or follow starts that are under way, until each is active with its instance and proved.

    Raises NotReady for the first that will not be; it is stopped, the others are left to go on and named.
    """
    begun = {one.instance.unit: one for one in _begun(host, tuple(instances))}
    seen: dict[str, Looked] = {}
    proved: set[str] = set()
    began = host.clock.now()
    while len(proved) < len(begun):
        told = _told(host, begun)
        # Those that are proved are looked at as well: one that dies again is not waited beside for minutes.
        seen |= _look(host, begun.values())
        for unit, one in begun.items():
            found = seen[unit].unit
            if unit not in proved:
                tell(Seen(found, seen[unit].state))
                _tell_if_stopped(found, tell)
            if unit not in proved and found.active is ActiveState.ACTIVE:
                _prove(host, one.instance, seen, tell)
                proved.add(unit)
            elif _is_over(found, one.before, host.clock.now() - began):
                _give_up(host, one.instance, seen, tell)
        if len(proved) < len(begun):
            _pause(host, begun, told, [seen[unit].state for unit in begun.keys() - proved])


def down(host: Host, unit: str, tell: Tell) -> None:
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
        _await_end(host, seen.main_pid)


def _begun(host: Host, instances: tuple[Instance, ...]) -> Iterable[Coming]:
    before = systemd.show(tuple(one.unit for one in instances))
    for one in instances:
        # What the supervisor of an earlier start said last still lies there; a start that is under way is followed.
        under_way = before[one.unit].active is ActiveState.ACTIVATING
        coming = Coming(instance=one, before=before[one.unit], since=0.0 if under_way else host.clock.wall())
        systemd.start(one.unit, block=False)
        yield coming


def _look(host: Host, coming: Iterable[Coming]) -> dict[str, Looked]:
    by_unit = {one.instance.unit: one for one in coming}
    return {
        name: Looked(unit, _fresh(host, by_unit[name]))
        for name, unit in systemd.show(by_unit).items()
        if name in by_unit
    }


def _fresh(host: Host, one: Coming) -> RunState | None:
    """What the supervisor said last, if it was this instance's and of this start."""
    state = installed.run_state(host, one.instance.name)
    is_ours = state is not None and state.digest == one.instance.digest and state.started_at >= one.since
    return state if is_ours else None


def _told(host: Host, units: Iterable[str]) -> dict[str, int]:
    """By unit when its supervisor wrote its last words."""
    found = {}
    for unit in units:
        with suppress(FileNotFoundError):
            found[unit] = host.paths.run_state(instance_of(unit)).stat().st_mtime_ns
    return found


def _pause(host: Host, units: Iterable[str], told: Mapping[str, int], waiting: Iterable[RunState | None]) -> None:
    """Let time pass until somebody has told something new; once one calls itself ready, systemd is about to say so."""
    phases = {state.phase for state in waiting if state is not None}
    if Phase.READY in phases:
        host.clock.sleep(LOOK_CLOSELY_S)
        return
    every_s = GLANCE_EVERY_S if phases & {Phase.WARMUP, Phase.PROOF} else LOOK_EVERY_S
    until(lambda: _told(host, units) != told or None, host.clock, LOOK_EVERY_S, every_s)


def _await_end(host: Host, pid: int) -> None:
    """Let time pass until a main process has ended; where there is none, systemd clears up."""
    if pid:
        until(lambda: procs.stat(pid) is None or None, host.clock, LOOK_EVERY_S / 2, GLANCE_EVERY_S)
    else:
        host.clock.sleep(LOOK_CLOSELY_S)


def _tell_if_stopped(unit: Unit, tell: Tell) -> None:
    """A supervisor that somebody has stopped says nothing more, and its start goes on until systemd's limit."""
    if unit.main_pid and procs.is_stopped(unit.main_pid):
        tell(Waits(f"{unit.name}: its supervisor is stopped (SIGSTOP); kill -CONT {unit.main_pid}   lets it go on"))


def _prove(host: Host, instance: Instance, seen: Mapping[str, Looked], tell: Tell) -> None:
    """Prove from outside what the supervisor proved from inside; one that cannot be proved is stopped, not kept."""
    try:
        proof.soon(instance, host.clock, seen[instance.unit].unit)
    except NotReady as problem:
        down(host, instance.unit, tell)
        raise NotReady(f"{problem}{_others(seen, instance.unit)}", hint=problem.hint) from None


def _is_over(unit: Unit, before: Unit, waited_s: float) -> bool:
    """Failed, put down for an automatic restart (a deploy does not wait for luck), or never taken up."""
    if unit.active is ActiveState.FAILED or unit.sub.startswith("auto-restart") or unit.restarts > before.restarts:
        return True
    return unit.active is ActiveState.INACTIVE and waited_s > TAKE_UP_S


def _give_up(host: Host, instance: Instance, seen: Mapping[str, Looked], tell: Tell) -> None:
    """Stop the unit, so that systemd does not go on starting what never served, and say why."""
    unit, state = seen[instance.unit].unit, seen[instance.unit].state
    down(host, instance.unit, tell)
    wrote = logbook.last_lines(host, instance.unit, state) if state is not None else ()
    tell(Wrote(instance.unit, wrote))
    # What was seen last may have been the wait for a restart, which there is none any more.
    ended = unit.active if unit.active is ActiveState.INACTIVE else ActiveState.FAILED
    found = standing.of(replace(unit, active=ended, sub="", main_pid=0), state)
    said = (
        found.words if found.state in ("failed", "parked") else "it was stopped by somebody else while it was starting"
    )
    if state is not None and state.exit == SuperviseExit.PORT:
        said += _strangers(instance)
    said += _others(seen, instance.unit)
    advice = found.advice or f"dsv4ctl logs {instance.name}"
    details = {"unit": instance.unit, "wrote": wrote}
    raise NotReady(f"cannot bring up {instance.unit}: {said}", hint=advice, details=details)


def _others(seen: Mapping[str, Looked], unit: str) -> str:
    """What the others that were started beside a unit do now; '' where it was alone."""
    going = [f"{name}: {_doing(one)}" for name, one in seen.items() if name != unit]
    return f"; meanwhile {', '.join(going)}" if going else ""


def _doing(one: Looked) -> str:
    return one.unit.status_text or (one.state.words if one.state else "") or f"{one.unit.active} ({one.unit.sub})"


def _strangers(instance: Instance) -> str:
    """Who listens on the port now that nothing of ours does; the supervisor may not look into others' processes."""
    holders = sockets.holders(instance.port)
    return f"; on port {instance.port} there is {sockets.words(holders[0])}" if holders else ""
