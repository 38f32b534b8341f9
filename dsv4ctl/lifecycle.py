"""render, plan, deploy, teardown: each is one way through observe -> plan -> execute -> prove."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dsv4ctl import config, execute, foresight, marking, observe, plan, proof, release
from dsv4ctl.execute import Tell
from dsv4ctl.findings import Check, Proof
from dsv4ctl.host import Host
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.model import EngineBuild, HostSpec, HostView, Instance, Release
from dsv4ctl.plan import Start, Step
from dsv4ctl.problems import LeftOver, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a deploy would do, what stands against it, and what the operator should know."""

    release: Release
    engine: EngineBuild
    view: HostView
    steps: tuple[Step, ...]
    refusals: tuple[Problem, ...]
    warnings: tuple[str, ...]
    memory: Forecast

    def against(self) -> tuple[Problem, ...]:
        """Everything that stands against it: what others hold, and memory that cannot do for what is to be started."""
        starting = (step.instance.role for step in self.steps if isinstance(step, Start))
        return (*self.memory.refusals(starting), *self.refusals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teardown:
    """What a teardown did, and the checks that nothing is left (empty without --verify)."""

    steps: tuple[Step, ...]
    checks: tuple[Check, ...] = ()


def render(host: Host, spec: HostSpec) -> Release:
    """The release that `spec` gives on this host. Raises what the engine and release rooms raise."""
    machine = observe.machine(host, spec)
    return release.render(foresight.of_deploy(host, spec, machine).spec, machine, observe.texts())


def prepare(host: Host, spec: HostSpec) -> Plan:
    """Look at the host and plan the deploy; changes nothing."""
    machine = observe.machine(host, spec)
    memory = foresight.of_deploy(host, spec, machine)
    want = release.render(memory.spec, machine, observe.texts())
    view = observe.host(host, want)
    return Plan(
        release=want,
        engine=machine.engine,
        view=view,
        steps=plan.deploy(want, view),
        refusals=plan.refusals(want, view),
        memory=memory,
        warnings=(*config.warnings(spec), *memory.warnings(), *want.notes, *_objections(want, view)),
    )


def _objections(want: Release, view: HostView) -> Iterator[str]:
    """What the operator's drop-ins make of the units, where systemd would say nothing."""
    texts = {file.path: file.text for file in want.files}
    for instance in want.instances:
        if (unit := view.units.get(instance.unit)) and unit.drop_ins:
            yield from observe.objections(unit, texts[f"{plan.UNIT_FOLDER}/{unit.name}"])


def deploy(host: Host, spec: HostSpec, tell: Tell) -> tuple[Plan, tuple[Proof, ...]]:
    """Make the host match `spec` and prove that what answers is what was asked for.

    Refused before anything is touched when a port is held by somebody else. Raises the Problem of whatever failed.
    """
    with host.store.lock("deploy"):
        made = prepare(host, spec)
        refuse(made.against())
        host.store.cache_engine(observe.engine_key(made.engine), made.engine)
        execute.carry_out(host, made.steps, tell)
        proofs = prove(made.release.instances)
        marking.after(host, made.release.instances, made.memory)
        return made, proofs


def prove(instances: Iterable[Instance]) -> tuple[Proof, ...]:
    """Prove each instance from outside: who answers, is it ready, does it serve the model. Raises NotReady."""
    return tuple(proof.of(instance) for instance in instances)


def refuse(refusals: tuple[Problem, ...]) -> None:
    """Raise the refusals, all in one message when there are several."""
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise type(refusals[0])("\n".join(str(r) for r in refusals), hint=refusals[0].hint)


def teardown(host: Host, tell: Tell, *, verify: bool, purge: bool) -> Teardown:
    """Stop everything of ours, end what is left of our trees, and with `verify` prove that nothing is.

    Raises LeftOver naming what is still there.
    """
    with host.store.lock("teardown"):
        instances = observe.installed(host)
        view = observe.host(host, None)
        trees = proof.trees(view)
        steps = plan.teardown(instances, view, purge=purge)
        execute.carry_out(host, steps, tell)
        survivors = proof.end(host, trees)
        checks = proof.gone(instances, trees) if verify or survivors else ()
    left = [c for c in checks if not c.ok]
    if left:
        raise LeftOver(
            "cannot leave the host clean:\n" + "\n".join(f"{c.what}: {c.words}" for c in left), hint="dsv4ctl status"
        )
    return Teardown(steps=steps, checks=checks)


def planned_teardown(host: Host, *, purge: bool) -> tuple[Step, ...]:
    """What a teardown would do; changes nothing."""
    return plan.teardown(observe.installed(host), observe.host(host, None), purge=purge)
