"""An attempt at a release, guarded: it is proved and said so, or the host returns once to the last one that was.

What is written, in this order, so that a cut anywhere is understood: the release (before anything is done for it), the
verdict and the evidence of a failure (before anything is done about it), the verdict again with what serves after that.
A release without a verdict is one whose attempt was cut short.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from dsv4ctl import evidence, execute, generations, gpus, marking, observe, planning, probing
from dsv4ctl.due import DOWN, UP
from dsv4ctl.evidence import Watch
from dsv4ctl.findings import Probing
from dsv4ctl.generations import Generation, Kept, Outcome, Verdict
from dsv4ctl.host import Host
from dsv4ctl.model import ActiveState, HostView, Release, Role
from dsv4ctl.planned import Plan
from dsv4ctl.planning import Terms
from dsv4ctl.problems import Problem, Reverted
from dsv4ctl.steps import Disable, Step, Stop, is_leftover, is_record, started
from dsv4ctl.telling import Tell, Warns


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is attempted, on which terms, and who watches."""

    host: Host
    made: Plan
    terms: Terms
    watch: Watch

    @property
    def number(self) -> int:
        """The number of the release."""
        return self.made.generation.number


def attempt(host: Host, made: Plan, terms: Terms, tell: Tell) -> Probing:
    """Carry a plan out, prove what answers, and keep the verdict under the release's number.

    Raises Reverted when it failed and the last good release serves again; else the Problem of what failed, with what
    serves now as its last line.
    """
    this = Attempt(host=host, made=made, terms=terms, watch=Watch(host, tell))
    try:
        execute.carry_out(host, made.steps, this.watch.tell, may_fail=is_leftover)
        proved = probing.prove(host, made.release.instances)
        marking.after(host, made.release.instances, made.memory)
    except Problem as problem:
        # Not kept is not begun. And what was there before, and serves in its way, is not taken down by a look at it.
        if this.number not in host.store.releases.numbers() or not started(made.steps):
            raise
        raise _failed(this, problem) from problem
    _succeeded(this, proved)
    return proved


def serves(generation: Generation, *, again: bool = False) -> str:
    """`release 3 serves again on port 30001`; where there is a router, its port is the one that clients use."""
    found = generation.release.instances
    fronts = [one for one in found if one.role is Role.ROUTER] or found
    ports = f"port{'s' if len(fronts) > 1 else ''} {', '.join(str(one.port) for one in fronts)}"
    return f"release {generation.number} serves {'again ' if again else ''}on {ports}"


def _succeeded(this: Attempt, proved: Probing) -> None:
    """Keep the verdict of a change, or the first good one of what was there; forget what is too old."""
    releases, words, before = this.host.store.releases, serves(this.made.generation), _before(this)
    if this.made.steps or before is None or before.proved_at is None:
        try:
            _judge(this, replace(_verdict(this, Outcome.PROVED), serves=words, proof=proved))
        except Problem as problem:
            raise problem.extended(words) from problem
    if len(releases.numbers()) > this.terms.keep:
        kept = releases.all()
        here = next((one for one in kept if one.number == this.number), None)
        try:
            releases.forget(generations.forgotten(kept, here, this.terms.keep))
        except Problem as problem:
            this.watch.tell(Warns(f"{problem}; the next deploy tries it again"))


def _failed(this: Attempt, problem: Problem) -> Problem:
    """Keep what was seen, then go back, or leave nothing that a reboot would start again."""
    releases, verdict = this.host.store.releases, replace(_verdict(this, Outcome.FAILED), words=str(problem))
    # A full disk may be the very cause: what cannot be written must not keep the host from serving again.
    with suppress(Problem):
        _judge(this, verdict)
        releases.testify(this.number, evidence.gather(this.host, this.made.release.instances, this.watch, problem))
    good = generations.returns_to(this.made.generation, releases.all()) if this.terms.revert else None
    end = _return(this, problem, good) if good else _leave(this, problem)
    with suppress(Problem):
        _judge(this, replace(verdict, serves=str(end).splitlines()[-1]))
    return end


def _return(this: Attempt, problem: Problem, good: Kept) -> Problem:
    """Bring the last good release back, once; how that ended is the end of the attempt."""
    back, failed = good.generation, _history(this)
    this.watch.tell(Warns(f"{problem}; going back to release {good.number}"))
    try:
        steps, against = planning.back(this.host, good, gpus.read())
        planning.refuse(against)
    except Problem as second:
        # Nothing was done for it, so what is installed is still the release that failed.
        return _leave(this, problem, *_lost(good, second))
    try:
        execute.carry_out(this.host, steps, this.watch.tell, may_fail=is_leftover)
        probing.prove(this.host, back.release.instances)
    except Problem as second:
        return problem.extended(*_lost(good, second), failed, _stands(this.host, back.release))
    numbers = {"failed": this.number, "serves": back.number}
    return Reverted("\n".join((problem.whole(), failed, serves(back, again=True))), details=numbers)


def _lost(good: Kept, why: Problem) -> tuple[str, str]:
    """That the last good release is not back, and how it comes back once the reason is gone."""
    words = f"release {good.number} cannot be brought back either: {why}"
    return words, f"  try: {why.hint or 'dsv4ctl status'}; then dsv4ctl rollback {good.number}"


def _leave(this: Attempt, problem: Problem, *lost: str) -> Problem:
    """What failed is down, and is not started at the next boot. `lost`: why there is nothing to go back to, if so."""
    also = [*lost]
    try:
        steps = tuple(_downs(this, observe.host(this.host, this.made.release)))
        also += map(str, execute.carry_out(this.host, steps, this.watch.tell, may_fail=is_record))
    except Problem as second:
        also.append(str(second))
    return problem.extended(*also, _history(this), _stands(this.host, this.made.release))


def _downs(this: Attempt, view: HostView) -> Iterable[Step]:
    """Stops what this attempt started, unless it is to be left for a look; disables what is down."""
    why = f"release {this.number} failed, and is not to be started again"
    for one in started(this.made.steps):
        unit = view.units.get(one.unit)
        if unit is None:
            continue
        # One that waits for its restart has no process to tell whose it is; what else would it be started with?
        ours = view.running.get(one.unit, one.digest) == one.digest
        ends = this.terms.revert and unit.active not in DOWN and ours
        if ends:
            yield Stop(unit=one.unit, reason=why)
        if unit.enabled == "enabled" and (ends or unit.active in DOWN):
            yield Disable(unit=one.unit, reason=why)


def _stands(host: Host, release: Release) -> str:
    """What runs of ours, as the last line of a failure."""
    try:
        view = observe.host(host, release)
    except Problem as problem:
        return f"what serves now cannot be told: {problem}"
    up = {name: unit.active for name, unit in view.units.items() if name.endswith(".service") and unit.active in UP}
    starts = sorted(name for name, state in up.items() if state == ActiveState.ACTIVATING)
    runs = sorted(set(up) - set(starts))
    words = [f"{', '.join(runs)} still runs"] if runs else []
    # It serves nobody yet, and one that waits for its restart has no process at all.
    words += [f"{', '.join(starts)} is still being started"] if starts else []
    return "; ".join(words) or "nothing serves now"


def _history(this: Attempt) -> str:
    return f"release {this.number} failed; what was seen of it: dsv4ctl history {this.number}"


def _verdict(this: Attempt, outcome: Outcome) -> Verdict:
    clock, watch = this.host.clock, this.watch
    return Verdict(outcome=outcome, at=clock.wall(), took_s=round(clock.now() - watch.began, 2), phases=watch.phases())


def _before(this: Attempt) -> Verdict | None:
    """The verdict of an earlier attempt at the same release."""
    with suppress(Problem):
        return this.host.store.releases.read(this.number).verdict
    return None


def _judge(this: Attempt, verdict: Verdict) -> None:
    this.host.store.releases.judge(this.number, generations.after(_before(this), verdict))
