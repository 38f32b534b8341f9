"""Steps -> for how long clients will get no answer, by what earlier starts took. Pure, and told with a plan."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dsv4ctl import cgroups
from dsv4ctl.free import EndTree
from dsv4ctl.model import Holder, HostView, Instance, Release, Role
from dsv4ctl.starts import PastStart, expected_s
from dsv4ctl.steps import Start, StartTogether, Step, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """`since`: the unit whose stop it begins with, or who is ended for it, '' when nothing answers there now; `until`:
    the unit whose proof ends it. `seconds`: without the drain; None when nobody can tell, because `unknown` was never
    started here."""

    port: int
    since: str
    until: str
    seconds: float | None
    unknown: str = ""

    @property
    def words(self) -> str:
        """In a line."""
        began = f"from the {self._how} of {self.since} to the proof of {self.until}" if self.since else ""
        return f"port {self.port} does not answer {began or f'before the proof of {self.until}'}, {self._long}"

    @property
    def _how(self) -> str:
        # Only a unit of ours is stopped, with its drain; whoever is no service is ended.
        return "stop" if self.since.endswith(".service") else "end"

    @property
    def _long(self) -> str:
        if self.seconds is None:
            return f"for how long is not known: {self.unknown} was never started here"
        minutes = round(self.seconds / 60)
        about = f"about {minutes} min" if minutes > 1 else f"about {max(1, round(self.seconds))} s"
        return f"{about} after {'the drain' if self._how == 'stop' else 'that'}" if self.since else about


def of(
    release: Release, view: HostView, steps: tuple[Step, ...], past: Mapping[str, tuple[PastStart, ...]]
) -> Outage | None:
    """The outage of the port that clients use; None where it answers all the time. `past`: unit -> earlier starts."""
    groups = tuple(_groups(steps))
    if not groups:
        return None
    port = _front(release).port
    holders = view.ports[port].holders if port in view.ports else ()
    answers = {holder.unit for holder in holders}
    stops = [step.unit for step in steps if isinstance(step, Stop) and step.unit in answers]
    stops += _ended(holders, steps)
    # A router that has lost a half of its pair still answers, and says 503.
    half = any(one.role in (Role.PREFILL, Role.DECODE) for group in groups for one in group)
    if answers and not stops and not half:
        return None
    known = [[(one.unit, expected_s(past.get(one.unit, ()), one.digest)) for one in group] for group in groups]
    unknown = next((unit for group in known for unit, seconds in group if seconds is None), "")
    return Outage(
        port=port,
        since=stops[0] if stops else "",
        until=groups[-1][-1].unit,
        seconds=None if unknown else sum(max(seconds or 0.0 for _, seconds in group) for group in known),
        unknown=unknown,
    )


def _ended(holders: Iterable[Holder], steps: Iterable[Step]) -> Iterator[str]:
    """Who answers now and is no unit of ours, and is ended by the steps: an adopted engine by its scope, else a pid."""
    gone = {member for step in steps if isinstance(step, EndTree) for member in step.tree.members}
    for process in (one for holder in holders for one in holder.processes if one.identity in gone):
        scope = cgroups.adopted(process.cgroup)
        yield scope.unit if scope else f"pid {process.pid} ({process.comm})"


def _groups(steps: Iterable[Step]) -> Iterator[tuple[Instance, ...]]:
    """The instances that are started, those that are started side by side together."""
    for step in steps:
        if isinstance(step, StartTogether):
            yield tuple(start.instance for start in step.starts)
        elif isinstance(step, Start):
            yield (step.instance,)


def _front(release: Release) -> Instance:
    """What clients talk to."""
    return next((one for one in release.instances if one.role is Role.ROUTER), release.instances[0])
