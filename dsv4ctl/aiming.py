"""Host x what shall be gone -> who is there, and what a teardown would do. Changes nothing; `clearing` does it."""

from dataclasses import dataclass, replace

from dsv4ctl import adopted, free, gpus, inquiry, installed, observe, plan, sockets
from dsv4ctl.adopted import Adopted
from dsv4ctl.free import Found
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import GpuView, HostView, Instance
from dsv4ctl.names import INSTANCE_FOLDER, UNIT_FOLDER
from dsv4ctl.problems import GpuProblem, WrongOption
from dsv4ctl.steps import Step


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
    """What a teardown would do: its aim, its instances, what it wants free, who was found on that, and the steps.
    `limit_s`: how long it waits for the driver."""

    aim: Aim
    instances: tuple[Instance, ...]
    view: HostView
    wanted: Wanted
    found: Found
    steps: tuple[Step, ...]
    limit_s: float = free.DRIVER_S


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
    return Clearing(aim=aim, instances=chosen, view=view, wanted=wanted, found=found, steps=steps, limit_s=limit_s)


def who(host: Host, *, ports: tuple[int, ...], numbers: tuple[int, ...], roles: tuple[str, ...] = ()) -> Clearing:
    """Who holds these ports and GPUs, and those of these roles, or without any those of what is installed; and what a
    teardown would do. Raises what `installed.chosen` raises."""
    named = installed.chosen(host, roles) if roles else ()
    aim = Aim(
        ports=(*ports, *(port for one in named for _, port in one.ports)),
        gpus=(*numbers, *(gpu for one in named for gpu in one.gpus)),
    )
    if aim.is_narrow:
        made = only(prepare(host, aim))
    else:
        every = tuple(gpu.index for gpu in gpus.read().gpus)
        made = prepare(host, replace(aim, gpus=every, ports=_installed_ports(host)))
    return replace(made, view=replace(made.view, ports={port: sockets.seen(port) for port in made.wanted.ports}))


def only(made: Clearing) -> Clearing:
    """Of what was found, what was asked for: a teardown also wants what else the same instances have."""
    ports, uuids = frozenset(made.aim.ports), {gpu.uuid for gpu in made.found.gpus.gpus if gpu.index in made.aim.gpus}
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
