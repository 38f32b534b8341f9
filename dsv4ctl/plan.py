"""Release x HostView -> steps, each with its reason. Pure: a plan can be printed, compared, cut and made again."""

from collections.abc import Iterable, Iterator

from dsv4ctl import brake, due, free
from dsv4ctl.due import DOWN, Due, is_up
from dsv4ctl.free import Found, FreeStep
from dsv4ctl.model import ActiveState, HostView, Instance, LoadState, PortView, Release, Role, Unit
from dsv4ctl.names import INSTANCE_FOLDER, TARGET, UNIT_FOLDER, role_of
from dsv4ctl.problems import PortTaken, Problem
from dsv4ctl.steps import (
    Disable,
    Enable,
    EndPause,
    Reach,
    ReleaseBrake,
    Reload,
    RemoveFile,
    ResetFailed,
    Start,
    StartTogether,
    Step,
    Stop,
    WriteFile,
)

# The router stops first so that nothing new comes in; a prefill outlives the decode that pulls KV from it.
STOP_ORDER: tuple[str, ...] = (Role.ROUTER, Role.SERVER, Role.DECODE, Role.PREFILL)

# For a plan of which nothing is known but our own units.
NOBODY = Found()


def deploy(release: Release, view: HostView, found: Found = NOBODY) -> tuple[Step, ...]:
    """The steps that make the host match `release`; empty when it does. `found`: who holds what it needs.

    Files first (the old instances still serve meanwhile), then stops, under the settings that the old ones were started
    with, then what frees ports and GPUs, then starts, then what makes it last.
    """
    stale = _stale_units(release, view)
    wanting = due.of(release, view)
    writes = tuple(_writes(release, view))
    removals = tuple(_removals(stale, view))
    touched: tuple[WriteFile | RemoveFile, ...] = (*writes, *removals)
    return (
        *writes,
        *_stops(_stale_stops(release, stale), _due_stops(wanting)),
        *(Disable(unit=u.name, reason=f"mode {release.mode} has no {u.name}") for u in stale if u.enabled == "enabled"),
        # Else systemd goes on to count it as failed when its file is gone.
        *(ResetFailed(unit=u.name, reason=f"mode {release.mode} has no {u.name}") for u in stale if _has_failed(u)),
        *removals,
        *_reload(release, view, any_file=any(_is_unit(s.path) for s in touched)),
        *_frees(wanting, view, found),
        *_end_pause(view),
        *(_release_brake(view) if wanting else ()),
        *_resets(wanting, view),
        *_starts(wanting),
        *_reaches(view),
        *_enables(release, view),
        *_leftovers(release, view),
    )


def resume(instances: Iterable[Instance], view: HostView) -> tuple[Step, ...]:
    """The steps that give a host back to its restarts, with what the pause or the brake has kept down started again.

    Stopped within the pause: after it a supervisor without an engine ends by itself, for a restart that takes its time.
    """
    wanting = tuple(due.held(instances, view))
    return (
        *_stops(_due_stops(wanting)),
        *_end_pause(view),
        *_release_brake(view),
        *_resets(wanting, view),
        *_starts(wanting),
    )


def _end_pause(view: HostView) -> Iterator[EndPause]:
    """The step that ends a pause, if one lasts. A deploy is refused within a pause unless it is asked to end it."""
    if view.pause is not None:
        yield EndPause(reason=f"{view.pause.who} asked for it: {view.pause.reason}")


def _release_brake(view: HostView) -> Iterator[ReleaseBrake]:
    """The step that lets the brake go, if a start has failed: what an operator asks for begins afresh."""
    parked = [f"{name} is parked" for name, _ in brake.parkings(view.tallies)]
    if parked or any(tally.failed for tally in view.tallies.values()):
        yield ReleaseBrake(reason=", ".join(parked) or "earlier starts shall not count")


def to_start(release: Release, view: HostView) -> tuple[Instance, ...]:
    """The instances that a deploy would start: what they need must be free."""
    return tuple(one.instance for one in due.of(release, view) if not one.follows)


def refusals(release: Release, view: HostView, found: Found = NOBODY) -> tuple[Problem, ...]:
    """Why the host cannot take `release` now: whatever an instance to be started needs and somebody else keeps.

    A holder inside a unit of ours does not count: that unit is stopped by the plan, or is the instance itself; nor does
    a stray that the plan ends.
    """
    wanting = due.of(release, view)
    ours = {u.name for u in _our_services(view) if u.active not in DOWN}
    return (
        *_masked(release, view),
        *(
            _taken(one.instance, job, view.ports[port], found)
            for one in wanting
            for job, port in one.instance.ports
            if port in view.ports and free.blocking(view.ports[port], ours, found.ended)
        ),
        *free.unfit(to_start(release, view), found.gpus),
        *free.cramped(to_start(release, view), found),
        *free.on_gpus(found),
    )


def _masked(release: Release, view: HostView) -> Iterator[Problem]:
    """Somebody has said that a unit shall not run; to write its file anew would undo that without a word."""
    for name in (*(one.unit for one in release.instances), TARGET):
        unit = view.units.get(name)
        if unit is not None and unit.load is LoadState.MASKED:
            yield Problem(
                f"cannot deploy {name}: it is masked, so that nobody starts it", hint=f"systemctl unmask {name}"
            )


def teardown(view: HostView, *, purge: bool) -> tuple[Step, ...]:
    """The steps that leave nothing of ours running; with `purge` nothing of ours installed either."""
    ours = _our_services(view)
    stops = (Stop(unit=u.name, reason=f"it is {u.active} ({u.sub})") for u in ours if u.active not in DOWN)
    return (
        *_stops(stops),
        # A unit whose engine had to be killed is left failed by its stop: the reset is planned for all that were up.
        # Last, for it takes all its services down at once and in no order.
        *([Stop(unit=TARGET, reason="nothing of it runs any more")] if is_up(view.units.get(TARGET)) else []),
        *(ResetFailed(unit=u.name, reason="a stop may leave one") for u in ours if u.active != "inactive"),
        *(purges(view) if purge else ()),
    )


def purges(view: HostView) -> tuple[Step, ...]:
    """The steps that remove everything of ours that is installed."""
    return (
        *(Disable(unit=u.name, reason="--purge") for u in _installed(view) if u.enabled == "enabled"),
        *(RemoveFile(path=p, before=t, reason="--purge") for p, t in sorted(view.files.items())),
        *([Reload(reason="unit files are removed")] if any(_is_unit(p) for p in view.files) else []),
    )


def _stale_stops(release: Release, stale: Iterable[Unit]) -> Iterator[Stop]:
    for unit in stale:
        if unit.active not in DOWN:
            yield Stop(unit=unit.name, reason=f"mode {release.mode} has no {unit.name}")


def _due_stops(wanting: Iterable[Due]) -> Iterator[Stop]:
    for one in wanting:
        if one.stops:
            yield Stop(unit=one.instance.unit, reason=one.why)


def _stops(*groups: Iterable[Stop]) -> list[Stop]:
    """All of them in one order, those of the mode before and those of the mode to come."""
    return sorted((stop for group in groups for stop in group), key=lambda stop: (_stop_rank(stop.unit), stop.unit))


def _stop_rank(unit: str) -> int:
    """By the name alone, which tells the role where nothing else does any more."""
    role = role_of(unit)
    return STOP_ORDER.index(role) if role in STOP_ORDER else -1


def _frees(wanting: tuple[Due, ...], view: HostView, found: Found) -> tuple[FreeStep, ...]:
    if not wanting:
        return ()
    # What is followed has its ports and GPUs already.
    new = tuple(one.instance for one in wanting if not one.follows)
    limit_s = free.driver_s(one.instance for one in wanting)
    return (
        *free.ends(found, kill_s=limit_s),
        *free.segments(found),
        *free.awaits_ports(new, view.ports),
        *free.awaits(new, found, limit_s=limit_s),
    )


def _resets(wanting: tuple[Due, ...], view: HostView) -> Iterator[ResetFailed]:
    # Manual and automatic starts share one counter, whose interval is hours long; no start that an operator asks for is
    # refused for earlier ones.
    for one in wanting:
        unit = view.units.get(one.instance.unit)
        if unit is None or unit.load is not LoadState.LOADED or one.follows:
            continue
        failed = unit.active is ActiveState.FAILED
        why = f"it failed before ({unit.result}); this start is yours" if failed else "earlier starts shall not count"
        yield ResetFailed(unit=unit.name, reason=why)


def _starts(wanting: tuple[Due, ...]) -> Iterator[Start | StartTogether]:
    """Engines side by side, for each takes minutes to load; then the router, to which they must be there."""
    engines = tuple(_start(one) for one in wanting if one.instance.role is not Role.ROUTER)
    if len(engines) > 1:
        yield StartTogether(starts=engines, reason="each takes minutes to load, and none needs another for it")
    else:
        yield from engines
    yield from (_start(one) for one in wanting if one.instance.role is Role.ROUTER)


def _start(one: Due) -> Start:
    return Start(instance=one.instance, reason=one.why)


def _writes(release: Release, view: HostView) -> Iterator[WriteFile]:
    for file in release.files:
        before = view.files.get(file.path)
        if before != file.text:
            why = "it is new" if before is None else "its text changed"
            yield WriteFile(path=file.path, text=file.text, before=before, reason=why)


def _removals(stale: tuple[Unit, ...], view: HostView) -> Iterator[RemoveFile]:
    for unit in stale:
        path = f"{UNIT_FOLDER}/{unit.name}"
        if path in view.files:
            yield RemoveFile(path=path, before=view.files[path], reason="the mode has no such unit")


def _reload(release: Release, view: HostView, *, any_file: bool) -> Iterator[Reload]:
    # No change in unit text means no reload at all: a reload makes running GPU containers lose their GPUs (B36).
    names = (TARGET, *(i.unit for i in release.instances))
    waiting = [n for n in names if n in view.units and view.units[n].needs_reload]
    if any_file:
        yield Reload(reason="unit files changed")
    elif waiting:
        yield Reload(reason=f"systemd has not read {', '.join(waiting)} yet")


def _reaches(view: HostView) -> Iterator[Reach]:
    if not is_up(view.units.get(TARGET)):
        yield Reach(unit=TARGET, reason="its state is that of all instances together")


def _enables(release: Release, view: HostView) -> Iterator[Enable]:
    for name in (TARGET, *(i.unit for i in release.instances)):
        unit = view.units.get(name)
        if unit is None or unit.enabled != "enabled":
            yield Enable(unit=name, reason="the host shall serve again after a reboot")


def _leftovers(release: Release, view: HostView) -> Iterator[RemoveFile]:
    """Instance files that no unit names any more; last, so that an interrupted deploy never misses one it needs."""
    wanted = {f.path for f in release.files}
    for path, text in sorted(view.files.items()):
        if path.startswith(INSTANCE_FOLDER) and path not in wanted:
            yield RemoveFile(path=path, before=text, reason="no unit names it any more")


def _our_services(view: HostView) -> tuple[Unit, ...]:
    return tuple(u for n, u in sorted(view.units.items()) if n.startswith("dsv4-") and n.endswith(".service"))


def _installed(view: HostView) -> tuple[Unit, ...]:
    return tuple(u for u in view.units.values() if f"{UNIT_FOLDER}/{u.name}" in view.files)


def _stale_units(release: Release, view: HostView) -> tuple[Unit, ...]:
    wanted = {i.unit for i in release.instances}
    return tuple(u for u in _our_services(view) if u.name not in wanted and _matters(u, view))


def _has_failed(unit: Unit) -> bool:
    return unit.active is ActiveState.FAILED


def _matters(unit: Unit, view: HostView) -> bool:
    return unit.active not in DOWN or f"{UNIT_FOLDER}/{unit.name}" in view.files


def _is_unit(path: str) -> bool:
    return path.startswith(UNIT_FOLDER)


def _taken(instance: Instance, job: str, port: PortView, found: Found) -> PortTaken:
    option = "--port" if job == "http" else "--internal-port"
    advice = free.advice_on(port, found)
    return PortTaken(
        f"cannot give port {port.port} ({job}) to {instance.unit}: {port.blocked}{free.signs_on(port.port, found)}",
        hint=f"{advice}{', or ' if advice else ''}choose another port: dsv4ctl deploy {option} …",
        details={"port": port.port, "unit": instance.unit, "holders": free.holders_on(port, found)},
    )
