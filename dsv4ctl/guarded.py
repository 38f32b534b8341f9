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
from dsv4ctl.steps import Disable, Step, Stop, started
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
        # Not kept is not begun. And what was there before, and serves in its way, is not taken down by a look at it.
        if made.generation.number not in host.store.releases.numbers() or not started(made.steps):
            raise
        raise _failed(host, made, (problem, watch), terms, tell) from problem
    _succeeded(host, made, (proved, watch), terms)
    return proved


def _succeeded(host: Host, made: Plan, what: tuple[Probing, Watch], terms: Terms) -> None:
    """Keep the verdict of a change, or the first good one of what was there; forget what is too old."""
    proved, watch = what
    before = _before(host, made)
    if made.steps or before is None or before.proved_at is None:
        verdict = replace(_verdict(host, Outcome.PROVED, watch), serves=serves(made.generation), proof=proved)
        try:
            _judge(host, made, verdict)
        except Problem as problem:
            raise problem.extended(serves(made.generation)) from problem
    kept = host.store.releases.all()
    here = next((one for one in kept if one.number == made.generation.number), None)
    host.store.releases.forget(generations.forgotten(kept, here, terms.keep))


def _failed(host: Host, made: Plan, what: tuple[Problem, Watch], terms: Terms, tell: Tell) -> Problem:
    """Keep what was seen, then go back, or leave nothing that a reboot would start again."""
    problem, watch = what
    verdict = replace(_verdict(host, Outcome.FAILED, watch), words=str(problem))
    # A full disk may be the very cause: what cannot be written must not keep the host from serving again.
    with suppress(Problem):
        _judge(host, made, verdict)
        seen = evidence.gather(host, made.release.instances, watch, problem)
        host.store.releases.testify(made.generation.number, seen)
    good = generations.returns_to(made.generation, host.store.releases.all()) if terms.revert else None
    end = _return(host, made, (problem, good), tell) if good else _leave(host, made, problem, terms)
    with suppress(Problem):
        _judge(host, made, replace(verdict, serves=str(end).splitlines()[-1]))
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
    also = []
    try:
        view = observe.host(host, made.release)
        execute.carry_out(host, tuple(_downs(made, view, stop=terms.revert)), lambda _: None)
    except Problem as second:
        also.append(str(second))
    return problem.extended(*also, _history(made), _stands(observe.host(host, made.release)))


def _downs(made: Plan, view: HostView, *, stop: bool) -> Iterable[Step]:
    why = f"release {made.generation.number} failed, and there is none to go back to"
    for one in started(made.steps):
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


def _verdict(host: Host, outcome: Outcome, watch: Watch) -> Verdict:
    took_s = round(host.clock.now() - watch.began, 2)
    return Verdict(outcome=outcome, at=host.clock.wall(), took_s=took_s, phases=watch.phases())


def _before(host: Host, made: Plan) -> Verdict | None:
    """The verdict of an earlier attempt at the same release."""
    with suppress(Problem):
        return host.store.releases.read(made.generation.number).verdict
    return None


def _judge(host: Host, made: Plan, verdict: Verdict) -> None:
    host.store.releases.judge(made.generation.number, generations.after(_before(host, made), verdict))
