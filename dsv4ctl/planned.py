"""What a deploy would do, and what stands against it, as a value. Pure."""

from dataclasses import dataclass

from dsv4ctl.generations import Generation, Kept
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.model import EngineBuild, HostView, Release
from dsv4ctl.outage import Outage
from dsv4ctl.problems import Problem
from dsv4ctl.savedplan import Ground
from dsv4ctl.steps import Step, started


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a deploy would do, what stands against it, and what the operator should know.

    `generation`: the release under the number that it has, or gets. `here`: what is installed now. `outage`: for how
    long clients get no answer, if they will.
    """

    generation: Generation
    here: Kept | None
    builds: tuple[EngineBuild, ...]
    view: HostView
    ground: Ground
    steps: tuple[Step, ...]
    refusals: tuple[Problem, ...]
    warnings: tuple[str, ...]
    memory: Forecast
    outage: Outage | None = None

    @property
    def release(self) -> Release:
        """What is to be deployed."""
        return self.generation.release

    def against(self) -> tuple[Problem, ...]:
        """Everything that stands against it: what others hold, and memory that cannot do for what is to be started."""
        starting = (instance.role for instance in started(self.steps))
        return (*self.memory.refusals(starting), *self.refusals)
