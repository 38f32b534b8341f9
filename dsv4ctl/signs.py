"""The signs of an engine on single processes, read while they are there. Judges nobody."""

from collections.abc import Iterable
from dataclasses import dataclass

from dsv4ctl import census, procs, threads
from dsv4ctl.names import INSTANCE_VARIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What a process shows of itself. `environment`: the engine environment that it runs in; `marked`: it carries our
    marker; `bare`: it has mapped no library of any environment; `leaving`: it is on its way out, and shows nothing."""

    environment: str = ""
    marked: bool = False
    bare: bool = False
    leaving: bool = False

    @property
    def of_engine(self) -> bool:
        """Whether there is any by which a process is an engine."""
        return self.marked or bool(self.environment)


def of(pids: Iterable[int]) -> dict[int, Signs]:
    """The signs on each of these processes."""
    return {pid: _read(pid) for pid in pids}


def _read(pid: int) -> Signs:
    environment, marked = census.environment_of(pid), INSTANCE_VARIABLE in procs.environment(pid)
    return Signs(
        environment=environment,
        marked=marked,
        bare=bool(environment) and not census.libraries(pid),
        leaving=not (environment or marked) and threads.is_exiting(pid),
    )
