"""Host x config, or host x kept release, -> the plan of a deploy: what it would do and what stands against it.

Changes nothing.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from dsv4ctl import (
    basis,
    brake,
    config,
    drift,
    dropins,
    foresight,
    generations,
    ground,
    inquiry,
    installed,
    maintenance,
    observe,
    outage,
    plan,
    preflight,
    release,
    revision,
    savedplan,
    starts,
)
from dsv4ctl.free import Found
from dsv4ctl.generations import KEPT, Generation, Kept
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.model import EngineBuild, GpuView, HostSpec, HostView, Instance, Machine, Release
from dsv4ctl.planned import Plan
from dsv4ctl.problems import Busy, GpuProblem, Moved, Problem, together
from dsv4ctl.savedplan import Ground, SavedPlan
from dsv4ctl.secret import args_shown, value_shown
from dsv4ctl.starts import PastStart
from dsv4ctl.steps import Keep, Step
from dsv4ctl.store.audit import person
from dsv4ctl.store.lock import command


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms a change is made: whom it may end, why it is made, whether it reverts, how long it waits for
    others, how many releases are kept after it, which saved plan it must still be, and whether it may end a pause."""

    evict: tuple[int, ...] = ()
    reason: str = ""
    revert: bool = True
    wait_s: float = 0.0
    keep: int = KEPT
    saved: SavedPlan | None = None
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """What a plan is made on: the machine, what its memory will hold, and the terms."""

    machine: Machine
    memory: Forecast
    terms: Terms


def prepare(host: Host, spec: HostSpec, terms: Terms | None = None) -> Plan:
    """Look at the host and plan the deploy of a config."""
    on = _premises(host, spec, terms or Terms())
    want = _generation(host, spec, release.render(on.memory.spec, on.machine, basis.texts()), on)
    made = _plan(host, want, on)
    return replace(made, warnings=(*config.warnings(spec), *made.warnings))


def again(host: Host, kept: Kept, terms: Terms) -> Plan:
    """Plan the deploy of a release as it was kept, on the host as it is now."""
    before = kept.generation
    on = _premises(host, before.spec, terms)
    want = _generation(host, before.spec, before.release, on)
    made = _plan(host, replace(want, restores=kept.number), on)
    return replace(
        made,
        refusals=(*_gone_gpus(before, on.machine.gpus), *made.refusals),
        warnings=(*generations.failed_before(kept), *_other_engine(before, on.machine.engine), *made.warnings),
    )


def back(host: Host, kept: Kept, gpus: GpuView) -> tuple[tuple[Step, ...], tuple[Problem, ...]]:
    """The steps that bring a kept release back under its own number, and what stands against them."""
    want = kept.generation.release
    view = observe.host(host, want)
    found = _found(plan.to_start(want, view), view, gpus, ())
    return plan.deploy(want, view, found), (*_gone_gpus(kept.generation, gpus), *plan.refusals(want, view, found))


def refuse(refusals: tuple[Problem, ...]) -> None:
    """Raise the refusals, all in one message when there are several."""
    if problem := together(refusals):
        raise problem


def _premises(host: Host, spec: HostSpec, terms: Terms) -> Premises:
    machine = basis.machine(host, spec)
    return Premises(machine=machine, memory=foresight.of_deploy(host, spec, machine), terms=terms)


def _plan(host: Host, want: Generation, on: Premises) -> Plan:
    machine, terms = on.machine, on.terms
    kept = host.store.releases.all()
    here = installed.release(host, kept)
    known = generations.number_of(want.release, kept, here, goes_back=want.restores is not None)
    want = replace(want, number=known or host.store.releases.next())
    view = observe.host(host, want.release)
    starting = plan.to_start(want.release, view)
    found = _found(starting, view, machine.gpus, terms.evict)
    stands_on = ground.of(want.release.digest, here, view.units.values(), machine.gpus)
    steps = plan.deploy(want.release, view, found)
    away = outage.of(want.release, view, steps, _past(host, want.release))
    return Plan(
        generation=want,
        here=here,
        builds=tuple(build for build in (machine.engine, machine.router) if build),
        view=view,
        ground=stands_on,
        steps=steps if known else (Keep(generation=want, reason=_why_keep(host, want, kept, here)), *steps),
        refusals=(
            *(_elsewhere(terms.saved, stands_on) if terms.saved else ()),
            *(() if terms.resume else _paused(host, view, want)),
            *(preflight.refusals(want.spec, machine) if starting else ()),
            *dropins.refusals(host, want.release, starting),
            *plan.refusals(want.release, view, found),
        ),
        warnings=(
            *filter(None, [maintenance.unreadable(host.paths.pause)]),
            *([away.words] if away and away.since else ()),
            *(_idle(terms.evict) if not starting else ()),
            *want.release.notes,
            *drift.here(host, view, here),
            *dropins.told(host, want.release, view),
            *preflight.misses(want.release.instances),
            *on.memory.warnings(),
        ),
        memory=on.memory,
        outage=away,
    )


def _idle(evict: tuple[int, ...]) -> Iterator[str]:
    """Whom the operator named although nothing is in anybody's way."""
    if evict:
        yield f"nothing is to be started, so that nobody is ended: --evict {', '.join(map(str, evict))}"


def _past(host: Host, want: Release) -> dict[str, tuple[PastStart, ...]]:
    """How long earlier starts took, by unit; a file that is not there or cannot be read tells of none."""
    found: dict[str, tuple[PastStart, ...]] = {}
    for one in want.instances:
        with suppress(OSError):
            found[one.unit] = starts.parse(host.paths.starts(one.name).read_text(errors="replace"))
    return found


def _paused(host: Host, view: HostView, want: Generation) -> Iterator[Busy]:
    """Somebody works on this host and has said so; what is started meanwhile would be in the way of both."""
    if view.pause is not None:
        words = brake.pause_words(view.pause, host.clock.wall())
        what = "deploy" if want.restores is None else "roll back"
        hint = f"{brake.way_past(want.command)}   ends the pause and goes on; dsv4ctl resume   only ends it"
        yield Busy(f"cannot {what}: this host is {words}", hint=hint, details={"pause": view.pause})


def _generation(host: Host, spec: HostSpec, want: Release, on: Premises) -> Generation:
    machine = on.machine
    return Generation(
        number=0,
        release=want,
        spec=_without_secrets(spec),
        engine_version=machine.engine.version,
        engine_stamp=machine.engine.stamp,
        model_revision=revision.of(spec.engine.model),
        driver=machine.gpus.driver,
        at=host.clock.wall(),
        who=person(),
        reason=on.terms.reason,
        command=command(),
    )


def _without_secrets(spec: HostSpec) -> HostSpec:
    shown = tuple((name, value_shown(name, value)) for name, value in spec.engine.environment)
    return replace(
        spec,
        engine=replace(spec.engine, environment=shown, args=args_shown(spec.engine.args)),
        router=replace(spec.router, args=args_shown(spec.router.args)),
    )


def _elsewhere(saved: SavedPlan, now: Ground) -> Iterator[Moved]:
    if found := savedplan.moved(saved.ground, now):
        yield Moved(
            "cannot deploy this plan, for what it stands on has moved:\n" + "\n".join(found),
            hint="dsv4ctl plan --out FILE   makes it anew",
            details={"moved": found},
        )


def _why_keep(host: Host, want: Generation, kept: tuple[Kept, ...], here: Kept | None) -> str:
    return generations.why_new(want.release, kept, here, anything=bool(installed.instances(host)))


def _gone_gpus(kept: Generation, gpus: GpuView) -> Iterator[Problem]:
    """A release names its GPUs by UUID; the card in that place may be another one by now."""
    hint = "nvidia-smi -L   lists what the driver sees; a deploy renders for the GPUs of today"
    if gpus.problem and not gpus.gpus and any(one.gpu_uuids for one in kept.release.instances):
        # Said once, and not of each GPU that it is another one.
        yield GpuProblem(f"cannot go back to release {kept.number}: its GPUs cannot be told: {gpus.problem}", hint=hint)
        return
    there = {gpu.index: gpu.uuid for gpu in gpus.gpus}
    for one in kept.release.instances:
        for index, uuid in zip(one.gpus, one.gpu_uuids, strict=False):
            if there.get(index) != uuid:
                yield GpuProblem(
                    f"cannot go back to release {kept.number}: GPU {index} was {uuid}, and is "
                    f"{there.get(index, gpus.problem or 'not there')}",
                    hint=hint,
                )


def _other_engine(kept: Generation, engine: EngineBuild) -> Iterator[str]:
    if (engine.version, engine.stamp) != (kept.engine_version, kept.engine_stamp):
        yield (
            f"release {kept.number} was deployed with sglang {kept.engine_version}; {engine.python} has "
            f"{engine.version} now{' (installed anew)' if engine.version == kept.engine_version else ''}"
        )


def _found(starting: tuple[Instance, ...], view: HostView, gpus: GpuView, evict: tuple[int, ...]) -> Found:
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
    return inquiry.look(wanted, gpus)
