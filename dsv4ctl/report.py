"""What `status` shows: a row an instance, from systemd, the supervisor's words, the engine and the GPUs."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from dsv4ctl import (
    adopted,
    asking,
    brake,
    drift,
    gpus,
    installed,
    maintenance,
    measurements,
    probe,
    procs,
    rlimits,
    standing,
    systemd,
    unfinished,
)
from dsv4ctl.adopted import Adopted
from dsv4ctl.asking import Asked
from dsv4ctl.findings import Row, Status, serves
from dsv4ctl.generations import Kept
from dsv4ctl.host import Host
from dsv4ctl.memory import marks
from dsv4ctl.model import ActiveState, GpuView, Instance, LoadState, Pause, Role, RunState, Unit
from dsv4ctl.names import ADOPTED_SCOPES
from dsv4ctl.problems import Problem
from dsv4ctl.standing import Standing


def status(host: Host, roles: tuple[str, ...] = ()) -> Status:
    """Look at every installed instance, and tell of those of some roles, or of all.

    GPUs are read beside the engines, for NVML takes longest.
    """
    with gpus.Query() as query:
        return _status(host, roles, query)


def _status(host: Host, roles: tuple[str, ...], query: gpus.Query) -> Status:
    work = unfinished.at_work(host)
    instances = installed.instances(host)
    # A host without systemd, or with nothing on it, has nothing to show, and that is no error.
    there = (ADOPTED_SCOPES,) if systemd.is_running() else ()
    lost = installed.faults(host)
    away = missing(instances, lost)
    units = systemd.show((*there, *(i.unit for i in instances), *lost, *away))
    taken_over = adopted.of(units)
    with ThreadPoolExecutor(max_workers=4) as pool:
        wants_gpus = bool(taken_over) or any(i.gpus for i in instances)
        reading = pool.submit(query.view) if wants_gpus else None
        kept = installed.release(host)
        rows = tuple(pool.map(lambda i: _row(host, i, units[i.unit], kept), instances))
        bare = tuple(pool.map(lambda name: _unwritten(host, units[name]), lost))
        theirs = tuple(pool.map(_adopted_row, taken_over))
        view = reading.result() if reading else GpuView()
    faults = (
        *(f"nothing is known of {unit}: {why}" for unit, why in lost.items()),
        *(missing_words(units[unit], by, installed.anew(host, unit)) for unit, by in away.items()),
        *_amiss(host, rows),
        *(ended_words(scope) for scope in _ended(host, taken_over, rows)),
    )
    pause = maintenance.lasting(host.paths.pause, host.clock.wall())
    notes = (
        *((work.words,) if work else ()),
        *_held(host, pause, instances),
        *((f"GPU memory is unknown: {view.problem}",) if view.problem else ()),
        *faults,
        *rlimits.inherited({i.unit: _limits(units[i.unit]) for i in instances}),
        *(_by_hand() if there and not units else ()),
    )
    ours = tuple(_with_gpus(row, i, view) for row, i in zip(rows, instances, strict=True))
    others = (_with_their_gpus(row, one, view) for row, one in zip(theirs, taken_over, strict=True))
    chosen = {one.unit for one in (installed.chosen(host, roles) if roles else instances)}
    shown = (*(row for row in degraded(ours, instances) if row.unit in chosen), *(() if roles else (*bare, *others)))
    well = not faults and all(row.well for row in shown) and (work is None or serves(shown))
    return Status(rows=shown, notes=notes, well=well, pause=pause, work=work)


def _limits(unit: Unit) -> tuple[rlimits.Short, ...]:
    return rlimits.short(installed.settings(unit), procs.cgroup_pids(unit.cgroup))


def _by_hand() -> Iterable[str]:
    from dsv4ctl import unmanaged  # noqa: PLC0415 -- who judges all processes is long to load, and not asked elsewhere

    return unmanaged.words()


def _unwritten(host: Host, unit: Unit) -> Row:
    from dsv4ctl import unwritten  # noqa: PLC0415 -- the engine's options are read where nothing else is left

    return unwritten.row(unit, installed.anew(host, unit.name))


def _held(host: Host, pause: Pause | None, instances: Iterable[Instance]) -> Iterable[str]:
    """What holds starts on this host: the pause, and how near the brake is."""
    now = host.clock.wall()
    if pause is not None:
        yield f"{brake.pause_words(pause, now)}; `dsv4ctl resume` ends it"
    if near := brake.summary(maintenance.tallies(host.paths.all_starts), (i.limits for i in instances), now):
        yield near


def _amiss(host: Host, rows: Iterable[Row]) -> Iterable[str]:
    """What our own files tell of work that was not done to its end, or no longer tell."""
    is_down = any(row.state == ActiveState.INACTIVE for row in rows)
    yield from filter(
        None,
        (
            unfinished.words(host, is_down=is_down),
            unfinished.unreadable(host),
            maintenance.unreadable(host.paths.pause),
        ),
    )


def _ended(host: Host, taken_over: tuple[Adopted, ...], rows: tuple[Row, ...]) -> tuple[str, ...]:
    """Scopes of adopted engines that are not there any more."""
    # The trail may be long. Where what we deployed serves, it has taken the place of what was adopted before.
    if not taken_over and any(row.serves for row in rows):
        return ()
    with suppress(Problem):
        return adopted.ended(host.store.audit.lines(), (one.unit.name for one in taken_over))
    return ()


def ended_words(scope: str) -> str:
    """That an engine which nobody watched is gone."""
    return (
        f"{scope} has ended: what was started by hand and adopted there is gone, and nobody starts it again: "
        "dsv4ctl deploy   takes its place, dsv4ctl teardown   clears what is left"
    )


def missing(instances: Iterable[Instance], lost: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Unit that is no unit of ours any more -> the units whose peer it is. `lost`: those that are there, though
    nothing is known of them."""
    known = {*(one.unit for one in instances), *lost}
    needed = [(peer.unit, one.unit) for one in instances for peer in one.peers if peer.unit not in known]
    return {unit: tuple(by for other, by in needed if other == unit) for unit, _ in needed}


def missing_words(unit: Unit, by: tuple[str, ...], anew: str) -> str:
    """That a unit is missing, and how it comes back; `anew` is what to type to have its file written again."""
    need = f"and {' and '.join(by)} {'need' if len(by) > 1 else 'needs'} it"
    if unit.load is LoadState.MASKED:
        return f"{unit.name} is masked, {need}: systemctl unmask {unit.name}, then {anew}"
    return f"{unit.name} is not installed any more, {need}: {anew}   writes it anew"


def degraded(rows: tuple[Row, ...], instances: tuple[Instance, ...]) -> Iterable[Row]:
    """The rows, with those that serve and whose peers do not as what they are: a half is of no use."""
    by_unit = {row.unit: row for row in rows}
    for row, instance in zip(rows, instances, strict=True):
        away = [peer.name for peer in instance.peers if not (there := by_unit.get(peer.unit)) or not there.serves]
        if away and row.serves:
            yield replace(row, health=f"degraded: peer down ({' and '.join(away)})", well=False)
        else:
            yield row


def _row(host: Host, instance: Instance, unit: Unit, kept: Kept | None) -> Row:
    state = standing.own(installed.run_state(host, instance.name), instance.digest, unit)
    stands = standing.of(unit, state)
    up = unit.active is ActiveState.ACTIVE
    asked = asking.of(instance, unit) if up else Asked(health=_unasked(state, unit))
    unwatched = bool(unit.main_pid) and procs.is_stopped(unit.main_pid)
    return Row(
        unit=instance.unit,
        role=instance.role,
        state=stands.state,
        since=unit.since,
        pid=unit.main_pid,
        port=instance.port,
        health=asked.health,
        serves=asked.serves,
        well=(asked.serves and asked.whole and not unwatched) or stands.state == ActiveState.INACTIVE,
        model=instance.served_model_name,
        context_length=_context(instance, state),
        kv_tokens=asked.load.kv_tokens,
        running=asked.load.running,
        waiting=asked.load.waiting,
        gpus=instance.gpus,
        gpu_used_bytes=None,
        restarts=unit.restarts,
        words=_words(stands),
        notes=(*drift.of(host, instance, unit, kept), *_remarks(unit)),
        memory=_memory(host, instance) if up else "",
        workers_healthy=asked.workers_healthy,
        workers=len(instance.peers) if instance.role is Role.ROUTER else None,
    )


def _adopted_row(one: Adopted) -> Row:
    """An engine that was started by hand: no supervisor tells of it, so it is asked itself."""
    base = probe.base_url("127.0.0.1", one.port)
    path = "readiness" if one.role == Role.ROUTER else "ready"
    ready = probe.get(f"{base}/{path}", timeout_s=asking.TIMEOUT_S)
    load = asking.parse_loads(probe.get(f"{base}/v1/loads", timeout_s=asking.TIMEOUT_S).json())
    return Row(
        unit=one.unit.name,
        role=one.role,
        state="adopted",
        since=one.unit.since,
        pid=one.pids[0],
        port=one.port,
        health=asking.said(ready),
        serves=ready.status == 200,
        well=ready.status == 200,
        model=_served(base),
        context_length=None,
        kv_tokens=load.kv_tokens,
        running=load.running,
        waiting=load.waiting,
        gpus=(),
        gpu_used_bytes=None,
        restarts=0,
        words=f"started by hand, {len(one.pids)} processes; nobody watches it or starts it again "
        "(try: dsv4ctl deploy, with --config FILE where adopt --out wrote one)",
    )


def _served(base: str) -> str:
    """The name of the model that somebody serves; '-' when it does not say."""
    said = probe.get(f"{base}/v1/models", timeout_s=asking.TIMEOUT_S).json()
    models = said.get("data") if isinstance(said, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    return str(first.get("id", "-")) if isinstance(first, dict) else "-"


def _with_their_gpus(row: Row, one: Adopted, view: GpuView) -> Row:
    mine = [g for g in view.gpus if g.uuid in adopted.gpu_uuids((one,), view)]
    used = [g.used_bytes for g in mine if g.used_bytes is not None]
    return replace(row, gpus=tuple(g.index for g in mine), gpu_used_bytes=sum(used) if used else None)


def _memory(host: Host, instance: Instance) -> str:
    """What was planned for the instance and what its engine said when it was deployed."""
    mark = measurements.of_digest(host.paths, instance.digest)
    return marks.words(mark) if mark else ""


def _words(stands: Standing) -> str:
    return f"{stands.words} (try: {stands.advice})" if stands.advice else stands.words


def _context(instance: Instance, state: RunState | None) -> int | None:
    said = state.capacity.context_length if state is not None and state.capacity is not None else None
    return said or instance.context_length


def _remarks(unit: Unit) -> Iterable[str]:
    if unit.main_pid and procs.is_stopped(unit.main_pid):
        yield f"the supervisor of {unit.name} is stopped and watches nothing: kill -CONT {unit.main_pid}"
    yield from installed.objections(unit)
    yield from rlimits.lowered(unit.name, _limits(unit))
    pids = procs.cgroup_pids(unit.cgroup)
    for process in filter(None, map(procs.read, filter(procs.is_dumping_core, pids))):
        yield (
            f"pid {process.pid} ({process.comm}) of {unit.name} has crashed and writes its core file; nothing goes on "
            "before that is done (LimitCORE=0 would spare it)"
        )


def _unasked(state: RunState | None, unit: Unit) -> str:
    """The phase of a start under way, if it is this very supervisor that told it."""
    return state.phase if state is not None and unit.main_pid and state.pid == unit.main_pid else "-"


def _with_gpus(row: Row, instance: Instance, view: GpuView) -> Row:
    mine = [g for g in view.gpus if g.uuid in instance.gpu_uuids]
    used = [g.used_bytes for g in mine if g.used_bytes is not None]
    if not used or len(used) != len(instance.gpu_uuids):
        return row
    return replace(row, gpu_used_bytes=sum(used))
