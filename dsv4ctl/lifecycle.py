"""render, plan, deploy: each is one way through observe -> plan -> execute -> prove. Teardown is in clearing."""

from collections.abc import Iterator
from dataclasses import dataclass

from dsv4ctl import (
    config,
    execute,
    foresight,
    inquiry,
    installed,
    marking,
    observe,
    plan,
    preflight,
    probing,
    release,
)
from dsv4ctl.findings import Probing
from dsv4ctl.free import Found
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.model import EngineBuild, HostSpec, HostView, Instance, Machine, Release
from dsv4ctl.names import UNIT_FOLDER
from dsv4ctl.problems import Problem
from dsv4ctl.steps import Step, started
from dsv4ctl.telling import Tell, Warns


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a deploy would do, what stands against it, and what the operator should know."""

    release: Release
    builds: tuple[EngineBuild, ...]
    view: HostView
    steps: tuple[Step, ...]
    refusals: tuple[Problem, ...]
    warnings: tuple[str, ...]
    memory: Forecast

    def against(self) -> tuple[Problem, ...]:
        """Everything that stands against it: what others hold, and memory that cannot do for what is to be started."""
        starting = (instance.role for instance in started(self.steps))
        return (*self.memory.refusals(starting), *self.refusals)


def render(host: Host, spec: HostSpec) -> Release:
    """The release that `spec` gives on this host. Raises what the engine and release rooms raise."""
    machine = observe.machine(host, spec)
    return release.render(foresight.of_deploy(host, spec, machine).spec, machine, observe.texts())


def prepare(host: Host, spec: HostSpec, *, evict: tuple[int, ...] = ()) -> Plan:
    """Look at the host and plan the deploy; changes nothing. `evict`: pids that may be ended for it."""
    machine = observe.machine(host, spec)
    memory = foresight.of_deploy(host, spec, machine)
    want = release.render(memory.spec, machine, observe.texts())
    view = observe.host(host, want)
    starting = plan.to_start(want, view)
    found = _found(starting, view, machine, evict)
    return Plan(
        release=want,
        builds=tuple(build for build in (machine.engine, machine.router) if build),
        view=view,
        steps=plan.deploy(want, view, found),
        refusals=(*(preflight.refusals(spec, machine) if starting else ()), *plan.refusals(want, view, found)),
        warnings=(
            *config.warnings(spec),
            *want.notes,
            *_objections(want, view),
            *preflight.misses(want.instances),
            *memory.warnings(),
        ),
        memory=memory,
    )


def _objections(want: Release, view: HostView) -> Iterator[str]:
    """What the operator's drop-ins make of the units, where systemd would say nothing."""
    texts = {file.path: file.text for file in want.files}
    for instance in want.instances:
        if (unit := view.units.get(instance.unit)) and unit.drop_ins:
            yield from installed.objections(unit, texts[f"{UNIT_FOLDER}/{unit.name}"])


def deploy(host: Host, spec: HostSpec, tell: Tell, *, evict: tuple[int, ...] = ()) -> tuple[Plan, Probing]:
    """Make the host match `spec` and prove that what answers is what was asked for.

    A stray engine on a port or GPU that is needed is ended. Refused before anything is touched when somebody else holds
    it, unless `evict` names him. Raises the Problem of whatever failed.
    """
    host.require_live()
    with host.store.lock("deploy"):
        made = prepare(host, spec, evict=evict)
        for warning in made.warnings:
            tell(Warns(warning))
        refuse(made.against())
        for build in made.builds:
            host.store.engines.cache(observe.engine_key(build), build)
        execute.carry_out(host, made.steps, tell)
        proved = probing.prove(host, made.release.instances)
        marking.after(host, made.release.instances, made.memory)
        return made, proved


def refuse(refusals: tuple[Problem, ...]) -> None:
    """Raise the refusals, all in one message when there are several."""
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise type(refusals[0])("\n".join(str(r) for r in refusals), hint=refusals[0].hint)


def _found(starting: tuple[Instance, ...], view: HostView, machine: Machine, evict: tuple[int, ...]) -> Found:
    """Who holds what the instances that are about to start need; nobody is looked for when none is."""
    if not starting:
        return plan.NOBODY
    wanted = Wanted(
        ports=frozenset(port for i in starting for _, port in i.ports),
        gpus=frozenset(uuid for i in starting for uuid in i.gpu_uuids),
        evict=evict,
        # What was adopted was started by hand, and a deploy takes its place whole: half of a pair serves nobody.
        adopted=True,
        units=inquiry.units_of(view.units),
        users=inquiry.users_of(starting),
    )
    return inquiry.look(wanted, machine.gpus)
