"""teardown and who: from what shall be gone to the proof that it is. Deploy's counterpart; one page each."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from dsv4ctl import adopted, execute, free, gone, gpus, inquiry, installed, observe, plan, sockets, store, trees, turn
from dsv4ctl.adopted import Adopted
from dsv4ctl.ending import Ending
from dsv4ctl.findings import Check
from dsv4ctl.free import Found
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import GpuView, HostView, Identity, Instance
from dsv4ctl.names import INSTANCE_FOLDER, UNIT_FOLDER
from dsv4ctl.problems import ForeignHolder, GpuProblem, LeftOver, PortTaken, Problem, Status, WrongOption
from dsv4ctl.steps import Step, is_record
from dsv4ctl.store import Claim
from dsv4ctl.telling import Tell, Waits
from dsv4ctl.trees import UnitTree

# A tree that its starter brings back, or that forks while it is ended, is ended again; more often it is no accident.
ROUNDS = 20
# The first of these that a check failed with decides the exit status.
WORST_FIRST: tuple[type[Problem], ...] = (LeftOver, ForeignHolder, PortTaken, GpuProblem, Problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a teardown is asked for. Without mode, roles, ports and GPUs it is everything of ours.

    `strays`: engines that no release knows as well. `evict`: pids that may be ended though they are no engine.
    `limit_s`: how long to wait for the driver, a KILL that takes effect late included, by default as long as instances
    allow it before a start; `term_s`: how long a stray may take to end by itself.
    """

    mode: str = ""
    roles: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    strays: bool = False
    evict: tuple[int, ...] = ()
    limit_s: float | None = None
    term_s: float = free.TERM_S
    purge: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether it is for a part of what is ours."""
        return bool(self.mode or self.roles or self.ports or self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """What a teardown would do: its instances, what it wants free, who was found on that, and the steps. `limit_s`: how
    long it waits for the driver."""

    instances: tuple[Instance, ...]
    view: HostView
    wanted: Wanted
    found: Found
    steps: tuple[Step, ...]
    limit_s: float = free.DRIVER_S


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


def prepare(host: Host, aim: Aim) -> Clearing:
    """Look at the host and plan the teardown; changes nothing. Raises Problem for a mode, GPU or pid that is none."""
    view = observe.host(host, None)
    chosen = _chosen(host, (*installed.instances(host), *installed.former(host, view.running)), aim)
    view = _narrowed(view, chosen) if aim.is_narrow else view
    taken_over = () if aim.is_narrow else adopted.scopes()
    reads_gpus = aim.gpus or aim.strays or taken_over or any(i.gpus for i in chosen)
    seen = gpus.read() if reads_gpus else GpuView()
    wanted = _with_adopted(_wanted(chosen, view, aim, seen), taken_over, seen)
    found = inquiry.look(wanted, seen)
    # Strays leave segments behind as well, whosever they are.
    wanted = replace(wanted, users=wanted.users | {tree.root.uid for tree in found.blame.trees})
    limit_s = free.driver_s(chosen) if aim.limit_s is None else aim.limit_s
    steps = (
        *plan.teardown(view, purge=False),
        *free.ends(found, term_s=aim.term_s, kill_s=limit_s),
        *free.segments(found),
        *(plan.purges(view) if aim.purge else ()),
    )
    return Clearing(instances=chosen, view=view, wanted=wanted, found=found, steps=steps, limit_s=limit_s)


def teardown(host: Host, aim: Aim, tell: Tell, *, verify: bool, claim: Claim | None = None) -> Teardown:
    """Stop what is asked for of ours, end strays on its ports and GPUs, and with `verify` check that nothing is left.

    What could not be done or is left is told with the checks, not raised: they stand in every case. What cannot be
    written or removed of our own files is a check that failed, also without `verify`, and keeps nothing from being
    ended. Raises Problem for what cannot be begun.
    """
    host.require_live()
    with turn.taken(host, claim or Claim(what="teardown"), tell) as taken:
        made = prepare(host, aim)
        known = trees.of(made.view)
        done = _clear(host, made, aim, known, taken.tell)
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


def _clear(host: Host, made: Clearing, aim: Aim, known: Iterable[UnitTree], tell: Tell) -> Cleared:
    """Do the steps, end what outlived its unit and what came back, until one of that fails; then only look.

    What of our own records fails is passed over: it ends nobody and keeps nobody from being ended.
    """
    stays: list[Problem] = []
    try:
        stays += execute.carry_out(host, made.steps, tell, may_fail=is_record)
        survivors = trees.end(host, known, made.limit_s, lambda left: tell(Waits(str(Ending(left, killed=True)))))
        stays += _forget_keys(host, made.instances)
        found = _end_what_came_back(host, made, aim, tell)
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
    hint = "dsv4ctl deploy   writes it anew; dsv4ctl teardown --purge   removes it"
    return tuple(
        Check(what=f"ports and GPUs of {unit}", ok=False, words=f"cannot be told: {why}", hint=hint)
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


def who(host: Host, *, ports: tuple[int, ...], numbers: tuple[int, ...], roles: tuple[str, ...] = ()) -> Clearing:
    """Who holds these ports and GPUs, and those of these roles, or without any those of what is installed; and what a
    teardown would do. Raises what `installed.chosen` raises."""
    named = installed.chosen(host, roles) if roles else ()
    aim = Aim(
        ports=(*ports, *(port for one in named for _, port in one.ports)),
        gpus=(*numbers, *(gpu for one in named for gpu in one.gpus)),
    )
    if aim.is_narrow:
        made = only(prepare(host, aim), aim)
    else:
        every = tuple(gpu.index for gpu in gpus.read().gpus)
        made = prepare(host, replace(aim, gpus=every, ports=_installed_ports(host)))
    return replace(made, view=replace(made.view, ports={port: sockets.seen(port) for port in made.wanted.ports}))


def only(made: Clearing, aim: Aim) -> Clearing:
    """Of what was found, what was asked for: a teardown also wants what else the same instances have."""
    ports, uuids = frozenset(aim.ports), {gpu.uuid for gpu in made.found.gpus.gpus if gpu.index in aim.gpus}
    holders = tuple(s for s in made.found.blame.suspects if s.ports & ports or s.gpus & uuids)
    found = replace(made.found, blame=replace(made.found.blame, suspects=holders))
    return replace(made, wanted=replace(made.wanted, ports=ports, gpus=frozenset(uuids)), found=found)


def _installed_ports(host: Host) -> tuple[int, ...]:
    return tuple(port for instance in installed.instances(host) for _, port in instance.ports)


def _with_adopted(wanted: Wanted, taken_over: tuple[Adopted, ...], seen: GpuView) -> Wanted:
    """Free shall be as well what engines hold that somebody started by hand and that were adopted."""
    return replace(
        wanted,
        adopted=bool(taken_over),
        ports=wanted.ports | adopted.ports(taken_over),
        gpus=wanted.gpus | adopted.gpu_uuids(taken_over, seen),
    )


def _end_what_came_back(host: Host, made: Clearing, aim: Aim, tell: Tell) -> Found:
    """Look again, and end again what came back or was forked meanwhile; returns the last look."""
    wanted, known = _again(made)
    for _ in range(ROUNDS):
        found = inquiry.look(wanted, known)
        steps: tuple[Step, ...] = (
            *free.ends(found, term_s=aim.term_s, kill_s=made.limit_s),
            *free.segments(found),
        )
        if not steps:
            return found
        execute.carry_out(host, steps, tell)
    return inquiry.look(wanted, known)


def _again(made: Clearing) -> tuple[Wanted, GpuView | None]:
    """What is looked for again, and the GPUs if they are not to be read again."""
    # A driver that does not answer is not asked again and again: each question takes its whole time limit.
    return replace(made.wanted, evict=()), made.found.gpus if made.found.gpus.problem else None


def _chosen(host: Host, here: tuple[Instance, ...], aim: Aim) -> tuple[Instance, ...]:
    """The instances that are asked for: by mode and role, and by any of their ports and GPUs."""
    _require_mode(host, aim.mode)
    chosen = installed.of_roles(here, aim.roles)
    if not aim.ports and not aim.gpus:
        return chosen
    return tuple(
        i for i in chosen if any(port in aim.ports for _, port in i.ports) or any(gpu in aim.gpus for gpu in i.gpus)
    )


def _require_mode(host: Host, mode: str) -> None:
    here = installed.release(host) if mode else None
    if here is not None and (deployed := here.generation.release.mode) != mode:
        raise WrongOption(f"cannot tear down mode {mode}: mode {deployed} is deployed", hint="dsv4ctl status")


def _narrowed(view: HostView, chosen: tuple[Instance, ...]) -> HostView:
    """The part of the view that belongs to some instances."""
    units = {instance.unit for instance in chosen}
    files = {f"{UNIT_FOLDER}/{unit}" for unit in units}
    files |= {f"{INSTANCE_FOLDER}/{i.name}-{i.digest}.json" for i in chosen}
    return replace(
        view,
        units={name: unit for name, unit in view.units.items() if name in units},
        files={path: text for path, text in view.files.items() if path in files},
    )


def _wanted(chosen: tuple[Instance, ...], view: HostView, aim: Aim, seen: GpuView) -> Wanted:
    uuids = {gpu.index: gpu.uuid for gpu in seen.gpus}
    if missing := [number for number in aim.gpus if number not in uuids]:
        why = seen.problem or "this host has no such GPU"
        raise GpuProblem(f"cannot look at GPU {', '.join(map(str, missing))}: {why}", hint="nvidia-smi -L")
    return Wanted(
        ports=frozenset(aim.ports) | {port for i in chosen for _, port in i.ports},
        gpus=frozenset(uuids[number] for number in aim.gpus) | {uuid for i in chosen for uuid in i.gpu_uuids},
        everything=aim.strays,
        evict=aim.evict,
        units=inquiry.units_of(view.units),
        users=inquiry.users_of(chosen),
    )
