"""What is to be seen of a release that fails: units, supervisors, GPUs, journal. Changes nothing."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

from dsv4ctl import gpus, systemd
from dsv4ctl.generations import Evidence, PhaseTime
from dsv4ctl.host import Host
from dsv4ctl.model import GpuView, Instance, Phase
from dsv4ctl.names import instance_of
from dsv4ctl.problems import Problem
from dsv4ctl.steps import started
from dsv4ctl.telling import Doing, Said, Seen, Tell

# Of each unit: a traceback of every rank fits, a whole load's output does not.
JOURNAL_LINES = 200


class Watch:
    """Hears what a deploy tells and passes it on; keeps what each unit was seen in last, and when its phases began."""

    def __init__(self, host: Host, tell: Tell) -> None:
        self._clock, self._pass_on = host.clock, tell
        self.began, self.began_wall = host.clock.now(), host.clock.wall()
        self.last: dict[str, Seen] = {}
        self._phases: dict[str, list[tuple[Phase, float]]] = {}

    def tell(self, said: Said) -> None:
        """Take it in, and tell it."""
        if isinstance(said, Doing):
            self._phases |= {one.unit: [] for one in started((said.step,))}
        if isinstance(said, Seen):
            self._seen(said)
        self._pass_on(said)

    def _seen(self, said: Seen) -> None:
        known = self._phases.get(said.unit.name)
        # The stop after a failure says nothing of why; what was seen before it does.
        if known is None or (said.state is None and said.unit.name in self.last):
            return
        self.last[said.unit.name] = said
        if said.state is not None and (not known or known[-1][0] is not said.state.phase):
            known.append((said.state.phase, self._clock.now()))

    def phases(self) -> tuple[PhaseTime, ...]:
        """How long each phase of each start was seen; the last one lasts until now."""
        now = self._clock.now()
        return tuple(
            PhaseTime(instance=instance_of(unit), phase=str(phase), seconds=round(end - began, 2))
            for unit, found in self._phases.items()
            for (phase, began), (_, end) in pairwise((*found, (Phase.READY, now)))
            if phase not in (Phase.READY, Phase.FAILED)
        )


def gather(host: Host, instances: Iterable[Instance], watch: Watch, problem: Problem) -> Evidence:
    """Look at what is left of a deploy that failed. What cannot be looked at any more is left out."""
    units = [one.unit for one in instances]
    view = GpuView()
    with suppress(Problem):
        view = gpus.read()
    states = tuple(seen.state for seen in watch.last.values() if seen.state is not None)
    return Evidence(
        at=host.clock.wall(),
        words=str(problem),
        units=tuple(seen.unit for seen in watch.last.values()),
        states=states,
        gpus=view,
        journal=tuple(line for unit in units for line in _journal(unit, watch.began_wall)),
    )


def _journal(unit: str, since: float) -> tuple[str, ...]:
    with suppress(Problem):
        entries = systemd.journal(unit, lines=JOURNAL_LINES, since=since)
        return tuple(f"{entry.clock()} {entry.identifier}[{entry.pid}]: {entry.message}" for entry in entries)
    return ()
