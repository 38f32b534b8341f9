"""Waits until GPUs are back at their idle memory and ports can be bound: driver and kernel take their time."""

from collections.abc import Callable

from dsv4ctl import census, gpus, inquiry, sockets
from dsv4ctl.blame import gpus as memory
from dsv4ctl.blame import words
from dsv4ctl.clock import Clock
from dsv4ctl.free import AwaitGpus, AwaitPorts
from dsv4ctl.model import GpuView
from dsv4ctl.problems import GpuProblem, PortTaken

READ_EVERY_S = 0.5
PORT_EVERY_S = 0.2
# A reading lags behind the driver, so one alone proves nothing once memory was in use.
READS = 2


def await_ports(step: AwaitPorts, clock: Clock, tell: Callable[[str], None]) -> None:
    """Wait for the ports of a step. Raises PortTaken with who has one of them at the end of the step's limit."""
    end = clock.now() + step.limit_s
    for address, port in step.binds:
        while why := sockets.blocked(address, port):
            if clock.now() >= end:
                raise PortTaken(f"cannot take port {port}: {why}", hint=f"dsv4ctl who {port}", details={"port": port})
            tell(f"waiting for port {port}: {why}")
            clock.sleep(PORT_EVERY_S)


def await_gpus(step: AwaitGpus, clock: Clock, tell: Callable[[str], None]) -> float:
    """Wait for the GPUs of a step; returns the seconds waited.

    Raises GpuProblem naming GPU, bytes and processes when they are not idle within the step's limit: memory that no
    longer changes is not free for that.
    """
    why, waited = wait(step, clock, tell)
    if why:
        raise GpuProblem(
            f"cannot take {_names(step)}: after {waited:.0f} s {_once(why)}",
            hint="dsv4ctl who gpu:" + str(step.gpus[0][0]),
            details={"gpus": [{"index": index, "why": said} for index, said in why.items()]},
        )
    return waited


def wait(step: AwaitGpus, clock: Clock, tell: Callable[[str], None]) -> tuple[dict[int, str], float]:
    """Wait for the GPUs of a step, all at once and within its limit.

    Returns why those that are not idle by then are not, by index, and the seconds waited.
    """
    began, idle_reads, query = clock.now(), 0, gpus.Query()
    while True:
        with query:
            why = not_idle(query.view(), step)
        idle_reads = 0 if why else idle_reads + 1
        waited = clock.now() - began
        if idle_reads >= READS or (why and waited >= step.limit_s):
            return why, waited
        if why:
            tell(f"waiting for the driver, at most {max(0.0, step.limit_s - waited):.0f} s more: {_once(why)}")
        query = gpus.Query()
        clock.sleep(READ_EVERY_S if why else READ_EVERY_S / 5)


def not_idle(view: GpuView, step: AwaitGpus) -> dict[int, str]:
    """Why GPUs are not idle, by index, with who is on each; {} when all are."""
    missing = {index: why for index, uuid in step.gpus if (why := memory.missing(view, {index: uuid}))}
    wanted = frozenset(uuid for index, uuid in step.gpus if index not in missing)
    busy = [gpu for gpu in view.gpus if gpu.uuid in wanted and memory.busy(gpu)]
    holds = inquiry.gpu_holds(view, census.everything(), wanted) if busy else ()
    return missing | {gpu.index: words.gpu(gpu, holds) for gpu in busy}


def _once(why: dict[int, str]) -> str:
    return "; ".join(dict.fromkeys(why.values()))


def _names(step: AwaitGpus) -> str:
    numbers = ", ".join(str(index) for index, _ in step.gpus)
    return f"GPU{'s' if len(step.gpus) > 1 else ''} {numbers}"
