"""Host x Step -> effect, or a Problem. Each step verifies itself; a step that finds the world changed fails."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import assert_never

from dsv4ctl import bringing, ending, maintenance, settle, shm, store, systemd
from dsv4ctl.free import AwaitGpus, AwaitPorts, EndTree, RemoveSegment
from dsv4ctl.host import Host
from dsv4ctl.problems import Problem
from dsv4ctl.steps import (
    Disable,
    Enable,
    EndPause,
    Keep,
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
from dsv4ctl.telling import Doing, Tell, Waits, Warns


def carry_out(
    host: Host, steps: Iterable[Step], tell: Tell, *, may_fail: Callable[[Step], bool] = lambda _: False
) -> tuple[Problem, ...]:
    """Do every step in order, telling each before it is begun; trees that follow each other are ended side by side.

    Raises the Problem of the first that fails, unless it may: that is told, what follows is done, and it is returned.
    """
    failed = []
    for _, group in groupby(steps, key=lambda step: isinstance(step, EndTree)):
        todo = tuple(group)
        if trees := tuple(step for step in todo if isinstance(step, EndTree)):
            _end(host, trees, tell)
            continue
        for step in todo:
            tell(Doing(step))
            try:
                one(host, step, tell)
            except Problem as problem:
                if not may_fail(step):
                    raise
                tell(Warns(str(problem)))
                failed.append(problem)
    return tuple(failed)


def one(host: Host, step: Step, tell: Tell) -> None:
    """Do one step and look whether it holds."""
    match step:
        case WriteFile():
            store.write_atomic(host.paths.under(step.path), step.text, mode=0o644)
        case RemoveFile():
            store.files.remove(host.paths.under(step.path))
        case Reload():
            systemd.daemon_reload()
        case ResetFailed():
            systemd.reset_failed(step.unit)
        case Stop():
            bringing.down(host, step.unit, tell)
        case Start():
            bringing.up(host, (step.instance,), tell)
        case StartTogether():
            bringing.up(host, (start.instance for start in step.starts), tell)
        case Reach():
            systemd.start(step.unit, block=True)
        case Enable():
            systemd.enable(step.unit)
        case Disable():
            systemd.disable(step.unit)
        case Keep():
            host.store.releases.keep(step.generation)
        case EndPause():
            maintenance.end_pause(host.paths)
        case ReleaseBrake():
            maintenance.release(host.paths)
        case EndTree():
            _end(host, (step,), tell)
        case AwaitPorts():
            settle.await_ports(step, host.clock, lambda text: tell(Waits(text)))
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
