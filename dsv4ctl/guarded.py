"""An attempt at a release, guarded: it is proved and said so, or the host returns once to the last one that was."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from dsv4ctl import evidence, execute, generations, gpus, marking, observe, planning, probing
from dsv4ctl.due import DOWN, UP
from dsv4ctl.evidence import Watch
from dsv4ctl.findings import Probing
from dsv4ctl.generations import Generation, Kept, Outcome, Verdict
from dsv4ctl.host import Host
from dsv4ctl.model import HostView, Role
from dsv4ctl.planning import Plan, Terms
from dsv4ctl.problems import Problem, Reverted
from dsv4ctl.steps import Disable, Step, Stop
from dsv4ctl.telling import Tell, Warns


def attempt(host: Host, made: Plan, terms: Terms, tell: Tell) -> Probing:
    """Carry a plan out, prove what answers, and keep the verdict under the release's number.

    Raises Reverted when it failed and the last good release serves again; else the Problem of what failed, with what
    serves now as its last line.
    """
    watch = Watch(host, tell)
    try:
        execute.carry_out(host, made.steps, watch.tell)
        proved = probing.prove(host, made.release.instances)
        marking.after(host, made.release.instances, made.memory)
    except Problem as problem:
        if made.generation.number not in host.store.releases.numbers():
            raise  # it could not be kept, and so nothing was touched
        raise _failed(host, made, (problem, watch), terms, tell) from problem
    _succeeded(host, made, (proved, watch), terms)
    return proved


def _succeeded(host: Host, made: Plan, what: tuple[Probing, Watch], terms: Terms) -> None:
    """Keep the verdict of a change, or the first good one of what was there; forget what is too old."""
    proved, watch = what
    before = _kept(host, made.generation)
    if made.steps or before is None or not before.proved:
        now = host.clock.wall()
        took_s = round(host.clock.now() - watch.began, 2)
        _judge(
            host,
            made.generation,
            Verdict(
                outcome=Outcome.PROVED,
                at=now,
                took_s=took_s,
                serves=serves(made.generation),
                proof=proved,
                phases=watch.phases(),
            ),
        )
    kept = host.store.releases.all()
    here = next((one for one in kept if one.number == made.generation.number), None)
    host.store.releases.forget(generations.forgotten(kept, here, terms.keep))


def _failed(host: Host, made: Plan, what: tuple[Problem, Watch], terms: Terms, tell: Tell) -> Problem:
    """Keep what was seen, then go back, or leave nothing that a reboot would start again."""
    problem, watch = what
    verdict = Verdict(
        outcome=Outcome.FAILED,
        at=host.clock.wall(),
        took_s=round(host.clock.now() - watch.began, 2),
        words=str(problem),
        phases=watch.phases(),
    )
    # A full disk may be the very cause: what cannot be written must not keep the host from serving again.
    with suppress(Problem):
        _judge(host, made.generation, verdict)
        host.store.releases.testify(
            made.generation.number, evidence.gather(host, made.release.instances, watch, problem)
        )
    good = generations.returns_to(made.generation, host.store.releases.all()) if terms.revert else None
    end = _return(host, made, (problem, good), tell) if good else _leave(host, made, problem, terms)
    with suppress(Problem):
        _judge(host, made.generation, replace(verdict, serves=str(end).splitlines()[-1]))
    return end


def _return(host: Host, made: Plan, what: tuple[Problem, Kept], tell: Tell) -> Problem:
    problem, good = what
    tell(Warns(f"{problem}; going back to release {good.number}"))
    try:
        steps, against = planning.back(host, good, gpus.read())
        planning.refuse(against)
        execute.carry_out(host, steps, tell)
        probing.prove(host, good.generation.release.instances)
    except Problem as second:
        view = observe.host(host, good.generation.release)
        return problem.extended(
            f"release {good.number} cannot be brought back either: {second}", _history(made), _stands(view)
        )
    return Reverted("\n".join((problem.whole(), _history(made), serves(good.generation, again=True))))


def _leave(host: Host, made: Plan, problem: Problem, terms: Terms) -> Problem:
    """Nothing to go back to: what failed is down, and is not started at the next boot."""
    view = observe.host(host, made.release)
    execute.carry_out(host, tuple(_downs(made, view, stop=terms.revert)), lambda _: None)
    return problem.extended(_history(made), _stands(observe.host(host, made.release)))


def _downs(made: Plan, view: HostView, *, stop: bool) -> Iterable[Step]:
    why = f"release {made.generation.number} failed, and there is none to go back to"
    for one in made.release.instances:
        unit = view.units.get(one.unit)
        if unit is None:
            continue
        ends = stop and unit.active not in DOWN and view.running.get(one.unit) == one.digest
        if ends:
            yield Stop(unit=one.unit, reason=why)
        if unit.enabled == "enabled" and (ends or unit.active in DOWN):
            yield Disable(unit=one.unit, reason=why)


def _stands(view: HostView) -> str:
    """What runs of ours, as the last line of a failure."""
    up = sorted(name for name, unit in view.units.items() if name.endswith(".service") and unit.active in UP)
    return f"{', '.join(up)} still runs" if up else "nothing serves now"


def serves(generation: Generation, *, again: bool = False) -> str:
    """`release 3 serves again on port 30001`; where there is a router, its port is the one that clients use."""
    found = generation.release.instances
    fronts = [one for one in found if one.role is Role.ROUTER] or found
    ports = f"port{'s' if len(fronts) > 1 else ''} {', '.join(str(one.port) for one in fronts)}"
    return f"release {generation.number} serves {'again ' if again else ''}on {ports}"


def _history(made: Plan) -> str:
    return f"release {made.generation.number} failed; what was seen of it: dsv4ctl history {made.generation.number}"


def _kept(host: Host, generation: Generation) -> Kept | None:
    with suppress(Problem):
        return host.store.releases.read(generation.number)
    return None


def _judge(host: Host, generation: Generation, verdict: Verdict) -> None:
    before = _kept(host, generation)
    host.store.releases.judge(generation.number, generations.after(before.verdict if before else None, verdict))
