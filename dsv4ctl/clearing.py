"""teardown: from what shall be gone to the proof that it is. Deploy's counterpart, as `aiming` is planning's."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from dsv4ctl import aiming, execute, free, gone, gpus, inquiry, installed, store, trees, turn
from dsv4ctl.aiming import Aim, Clearing
from dsv4ctl.ending import Ending
from dsv4ctl.findings import Check
from dsv4ctl.free import Found
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import GpuView, Identity, Instance
from dsv4ctl.problems import ForeignHolder, GpuProblem, LeftOver, PortTaken, Problem, Status
from dsv4ctl.steps import Step, is_record
from dsv4ctl.store import Claim
from dsv4ctl.telling import Tell, Waits
from dsv4ctl.trees import UnitTree

# A tree that its starter brings back, or that forks while it is ended, is ended again; more often it is no accident.
ROUNDS = 20
# The first of these that a check failed with decides the exit status.
WORST_FIRST: tuple[type[Problem], ...] = (LeftOver, ForeignHolder, PortTaken, GpuProblem, Problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teardown:
    """What a teardown was to do, the checks that nothing is left (empty without --verify), and what could not be done
    or is left, if so."""

    steps: tuple[Step, ...]
    checks: tuple[Check, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """How far the work of a teardown came: who is on its ports and GPUs after it, who of our own units outlives a
    KILL, what ended it early, and why files of ours stay."""

    found: Found
    survivors: tuple[Identity, ...] = ()
    failed: Problem | None = None
    stays: tuple[Problem, ...] = ()


def teardown(host: Host, aim: Aim, tell: Tell, *, verify: bool, claim: Claim | None = None) -> Teardown:
    """Stop what is asked for of ours, end strays on its ports and GPUs, and with `verify` check that nothing is left.

    What could not be done or is left is told with the checks, not raised: they stand in every case. What cannot be
    written or removed of our own files is a check that failed, also without `verify`, and keeps nothing from being
    ended. Raises Problem for what cannot be begun.
    """
    host.require_live()
    with turn.taken(host, claim or Claim(what="teardown"), tell) as taken:
        made = aiming.prepare(host, aim)
        known = trees.of(made.view)
        done = _clear(host, made, known, taken.tell)
        checks: tuple[Check, ...] = ()
        if verify or done.survivors:
            # Who could not be ended was waited for already; what keeps us from looking comes after why we look.
            limit_s = 0.0 if done.failed else made.limit_s
            look = gone.Look(instances=made.instances, trees=known, wanted=made.wanted, limit_s=limit_s)
            is_bare = verify and not (made.instances or made.wanted.adopted or aim.is_narrow)
            with suppress(Problem) if done.failed else nullcontext():
                seen = _around(host, look, taken.tell) if is_bare else gone.checks(host, look, done.found, taken.tell)
                checks = (*seen, *_unknown(host, aim), *_unseen(done.failed, seen))
        checks = (*checks, *map(_stays, done.stays))
        problem = done.failed or worst(checks)
        taken.ends_as(problem)
    return Teardown(steps=made.steps, checks=checks, problem=problem)


def _clear(host: Host, made: Clearing, known: Iterable[UnitTree], tell: Tell) -> Cleared:
    """Do the steps, end what outlived its unit and what came back, until one of that fails; then only look.

    What of our own records fails is passed over: it ends nobody and keeps nobody from being ended.
    """
    stays: list[Problem] = []
    try:
        # The query comes up during the stops, so that who came back is seen at once after them.
        with gpus.Query() as query:
            stays += execute.carry_out(host, made.steps, tell, may_fail=is_record)
            survivors = trees.end(host, known, made.limit_s, lambda left: tell(Waits(str(Ending(left, killed=True)))))
            stays += _forget_keys(host, made.instances)
            found = _end_what_came_back(host, made, query, tell)
        return Cleared(found=found, survivors=survivors, stays=tuple(stays))
    except Problem as problem:
        with suppress(Problem):
            return Cleared(found=inquiry.look(*_again(made)), failed=problem, stays=tuple(stays))
        return Cleared(found=made.found, failed=problem, stays=tuple(stays))


def _forget_keys(host: Host, instances: Iterable[Instance]) -> Iterator[Problem]:
    """Remove the files with the key, which a supervisor that was killed could not; why one stays."""
    for instance in instances:
        try:
            store.files.remove(host.paths.secrets(instance.name))
        except Problem as problem:
            yield problem


def _stays(why: Problem) -> Check:
    return Check(what="files of ours", ok=False, words=str(why), status=Status.HOST, hint=why.hint)


def _around(host: Host, look: gone.Look, tell: Tell) -> tuple[Check, ...]:
    """Nothing is known to look at, so all of the host is: its GPUs, and its engines as --strays finds them."""
    seen = gpus.read()
    wanted = replace(look.wanted, everything=True, gpus=frozenset(gpu.uuid for gpu in seen.gpus), evict=())
    return gone.around(host, replace(look, wanted=wanted), inquiry.look(wanted, seen), tell)


def _unseen(failed: Problem | None, seen: Iterable[Check]) -> tuple[Check, ...]:
    """What could not be done, where no look at the host shows it: a process that holds nothing any more, say."""
    if failed is None or not all(check.ok for check in seen):
        return ()
    return (Check(what="steps", ok=False, words=str(failed), hint=failed.hint),)


def _unknown(host: Host, aim: Aim) -> tuple[Check, ...]:
    """Units whose ports and GPUs nobody can tell any more: that nothing of them is left cannot be said."""
    if aim.purge:
        return ()
    hint = "writes it anew; dsv4ctl teardown --purge   removes it"
    return tuple(
        Check(
            what=f"ports and GPUs of {unit}",
            ok=False,
            words=f"cannot be told: {why}",
            hint=f"{installed.anew(host, unit)}   {hint}",
        )
        for unit, why in installed.faults(host).items()
    )


def worst(checks: Iterable[Check]) -> Problem | None:
    """The problem that is left, a LeftOver, ForeignHolder, PortTaken or GpuProblem; None where nothing is."""
    left = [check for check in checks if not check.ok]
    if not left:
        return None
    kind = next(problem for problem in WORST_FIRST if any(check.status is problem.status for check in left))
    hint = next((check.hint for check in left if check.hint and check.status is kind.status), "dsv4ctl who")
    said = "cannot leave the host clean:\n" + "\n".join(f"{c.what}: {c.words}" for c in left)
    return kind(said, hint=hint, details={"left": left})


def _end_what_came_back(host: Host, made: Clearing, query: gpus.Query, tell: Tell) -> Found:
    """Look again, and end again what came back or was forked meanwhile; returns the last look."""
    wanted, known = _again(made)
    view: GpuView | None = known or (query.view() if wanted.needs_gpus else GpuView())
    for _ in range(ROUNDS):
        found = inquiry.look(wanted, view)
        ends = free.ends(found, term_s=made.aim.term_s, kill_s=made.limit_s)
        execute.carry_out(host, (*ends, *free.segments(found)), tell)
        if not ends:
            return found
        view = known
    return inquiry.look(wanted, known)


def _again(made: Clearing) -> tuple[Wanted, GpuView | None]:
    """What is looked for again, and the GPUs if they are not to be read again."""
    # A driver that does not answer is not asked again and again: each question takes its whole time limit.
    return replace(made.wanted, evict=()), made.found.gpus if made.found.gpus.problem else None
