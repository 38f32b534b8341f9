"""Release x HostView -> the instances that a deploy has to start, which of them it stops before, and why.

Pure, and a part of plan.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dsv4ctl.model import ActiveState, HostView, Instance, LoadState, Release, Role, Unit

UP = frozenset({ActiveState.ACTIVE, ActiveState.ACTIVATING, ActiveState.RELOADING, ActiveState.REFRESHING})
DOWN = frozenset({ActiveState.INACTIVE, ActiveState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An instance to be started. `follows`: a start of exactly it is under way. `stops`: something runs in its unit."""

    instance: Instance
    why: str
    follows: bool = False
    stops: bool = False


def of(release: Release, view: HostView) -> tuple[Due, ...]:
    """Every instance that is due, in the order of the release:

    1. what does not run as it is asked for
    2. the other half of a pair, where the way in which they hand KV over does not outlive one of them
    3. the router, where nobody is left behind it: it drains before its workers stop, and starts after them
    """
    due = {one.unit: own for one in release.instances if (own := _own(one, view))}
    for router in (one for one in release.instances if one.role is Role.ROUTER):
        due |= {half.instance.unit: half for half in _other_halves(router, release, due, view)}
        due |= {front.instance.unit: front for front in _front(router, due, view)}
    return tuple(due[one.unit] for one in release.instances if one.unit in due)


def held(instances: Iterable[Instance], view: HostView) -> Iterator[Due]:
    """The instances that the pause or the brake has kept down, and none that somebody stopped."""
    for one in instances:
        tally = view.tallies.get(one.name)
        if tally is not None and tally.parked is not None:
            yield Due(instance=one, why="the brake had parked it", stops=_runs(view.units.get(one.unit)))
        elif one.unit in view.idle:
            yield Due(instance=one, why="the pause has kept it down", stops=True)


def is_up(unit: Unit | None) -> bool:
    """Whether the unit runs or is on its way there."""
    return unit is not None and unit.active in UP


def _own(instance: Instance, view: HostView) -> Due | None:
    """What an instance is due for on its own account; None when it runs as it is asked for.

    Active with exactly its digest is what counts: a start under way is followed to its proof. Neither is it without an
    engine, which a pause has kept down.
    """
    unit = view.units.get(instance.unit)
    same = view.running.get(instance.unit) == instance.digest and instance.unit not in view.idle
    if unit is not None and same and unit.active is ActiveState.ACTIVE:
        return None
    if unit is not None and same and unit.active is ActiveState.ACTIVATING:
        return Due(instance=instance, why="a start of it is under way; follow it", follows=True)
    return Due(instance=instance, why=_why(instance, view), stops=_runs(unit))


def _runs(unit: Unit | None) -> bool:
    return unit is not None and unit.active not in DOWN


def _why(instance: Instance, view: HostView) -> str:
    """Another configuration runs, or it is in a state from which it does not serve by itself."""
    runs, unit = view.running.get(instance.unit, ""), view.units.get(instance.unit)
    if unit is None or (not is_up(unit) and unit.load is not LoadState.LOADED):
        return "it is new"
    if not is_up(unit):
        return f"it is {unit.active}"
    if runs.startswith(instance.digest) and runs != instance.digest:
        return "it was started from a unit that somebody had edited"
    if runs and runs != instance.digest:
        return "the configuration changed"
    if instance.unit in view.idle:
        return "the pause has kept it down"
    return f"it is {unit.active} ({unit.sub})"


def _other_halves(router: Instance, release: Release, due: Mapping[str, Due], view: HostView) -> Iterator[Due]:
    """Halves that serve as they are asked for, beside one that is started anew."""
    starting = [peer.unit for peer in router.peers if peer.unit in due and not due[peer.unit].follows]
    if not router.together or not starting:
        return
    for one in release.instances:
        if one.unit in {peer.unit for peer in router.peers} and one.unit not in due and _runs(view.units.get(one.unit)):
            yield Due(instance=one, why=f"{starting[0]} starts anew, and {router.together}", stops=True)


def _front(router: Instance, due: Mapping[str, Due], view: HostView) -> Iterator[Due]:
    """The router whose workers are stopped: any half of a pair leaves it nobody, of whole servers only all do."""
    there = due.get(router.unit)
    stopped = [peer for peer in router.peers if peer.unit in due and due[peer.unit].stops]
    left = [peer for peer in router.peers if peer.unit not in due]
    is_pair = any(peer.role is Role.PREFILL for peer in router.peers)
    if not stopped or (left and not is_pair) or not _runs(view.units.get(router.unit)) or (there and there.stops):
        return
    workers = " and ".join(peer.unit for peer in stopped)
    yield Due(instance=router, why=f"{workers} stop: it drains before, and starts after", stops=True)
