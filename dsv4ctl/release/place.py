"""Roles -> places on this host: ports, GPUs by UUID, NUMA node, names; and what is wrong with them."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dsv4ctl import placement
from dsv4ctl.config.engine_args import option_of
from dsv4ctl.model import Gpu, GpuView, HostSpec, Machine, Role, RoleShape
from dsv4ctl.model.release import by_job
from dsv4ctl.modes import gpus_text
from dsv4ctl.placement import Placement

# Each instance has ten internal ports; its first is the rendezvous, and so many above it are the others.
PORTS_EACH = 10
HTTP, BOOTSTRAP, METRICS = 1, 2, 3
# Where workers behind a router listen: nobody but the router has to reach them.
INSIDE = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A role's place on this host. `gpu_uuids` is shorter than `gpus` where a GPU is not there."""

    name: str
    role: Role
    tp: int
    host: str
    port: int
    rendezvous_port: int | None
    bootstrap_port: int | None
    metrics_port: int | None
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    placement: Placement
    secrets_file: str | None

    @property
    def unit(self) -> str:
        """The name of its systemd unit."""
        return f"dsv4-{self.name}.service"

    @property
    def ports(self) -> tuple[tuple[str, int], ...]:
        """Every port it binds, with its job."""
        return by_job(
            http=self.port,
            rendezvous=self.rendezvous_port,
            bootstrap=self.bootstrap_port,
            metrics=self.metrics_port,
        )


def places(spec: HostSpec, machine: Machine) -> tuple[Place, ...]:
    """Every role of the mode in its place, in the order of the mode."""
    return tuple(_place(spec, machine, index, name) for index, name in enumerate(names(spec.mode.roles)))


def names(roles: tuple[RoleShape, ...]) -> tuple[str, ...]:
    """The instances' names: the role, numbered from 0 where it is there more than once."""
    count = Counter(shape.role for shape in roles)
    seen: Counter[Role] = Counter()
    found = []
    for shape in roles:
        found.append(f"{shape.role}-{seen[shape.role]}" if count[shape.role] > 1 else str(shape.role))
        seen[shape.role] += 1
    return tuple(found)


def _place(spec: HostSpec, machine: Machine, index: int, name: str) -> Place:
    shape, first_port = spec.mode.roles[index], spec.internal_port + PORTS_EACH * index
    is_router, is_prefill = shape.role is Role.ROUTER, shape.role is Role.PREFILL
    inside = not is_router and any(one.role is Role.ROUTER for one in spec.mode.roles)
    gpus = tuple(gpu for gpu in machine.gpus.gpus if gpu.index in shape.gpus)
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    return Place(
        name=name,
        role=shape.role,
        tp=shape.tp,
        host=INSIDE if inside else spec.host,
        port=first_port + HTTP if inside else spec.port,
        rendezvous_port=None if is_router else first_port,
        bootstrap_port=(spec.transfer.bootstrap_port or first_port + BOOTSTRAP) if is_prefill else None,
        metrics_port=(spec.router.metrics_port or first_port + METRICS) if is_router else None,
        gpus=shape.gpus,
        gpu_uuids=tuple(uuids[gpu] for gpu in shape.gpus if gpu in uuids),
        placement=placement.place(gpus, machine.numa, bound_by_engine=binds_itself(spec)),
        secrets_file=f"/run/dsv4ctl/{name}/secrets.yaml" if spec.api_key_file else None,
    )


def binds_itself(spec: HostSpec) -> bool:
    """Whether the operator has the engine bind its ranks to NUMA nodes."""
    return any(option_of(word) == "--numa-node" for word in spec.engine.args)


def port_faults(places: tuple[Place, ...], machine: Machine) -> Iterator[str]:
    """Ports that two jobs share, and ports that the kernel may give to an outgoing connection at any moment."""
    jobs: defaultdict[int, list[str]] = defaultdict(list)
    for one in places:
        for job, port in one.ports:
            jobs[port].append(f"{job} of {one.name}")
    first, last = machine.ephemeral_ports
    for port, users in jobs.items():
        if len(users) > 1:
            yield f"port {port} is used twice: {' and '.join(users)}; {_apart(users)}"
        if first <= port <= last and port not in machine.reserved_ports:
            yield (
                f"port {port} ({' and '.join(users)}) lies in {first}-{last}, where this host takes ports for outgoing "
                f"connections; choose one outside, or reserve it: sysctl -w net.ipv4.ip_local_reserved_ports={port}"
            )


def _apart(users: list[str]) -> str:
    """Which keys to set apart."""
    words = " ".join(users)
    keys = ["port", "internal_port"]
    keys += ["transfer.bootstrap_port"] if "bootstrap" in words else []
    keys += ["router.metrics_port"] if "metrics" in words else []
    return f"give {', '.join(keys[:-1])} and {keys[-1]} different numbers"


def shared_gpu_faults(places: tuple[Place, ...]) -> Iterator[str]:
    """GPUs that are asked for more than once."""
    roles: defaultdict[int, list[str]] = defaultdict(list)
    for one in places:
        for gpu in one.gpus:
            roles[gpu].append(one.name)
    for gpu, names in roles.items():
        if len(names) > 1:
            yield f"GPU {gpu} is asked for more than once: by {' and by '.join(names)}"


def gpu_faults(places: tuple[Place, ...], view: GpuView) -> Iterator[str]:
    """GPUs that are asked for and cannot be had, with what there is."""
    asked = {gpu: one.name for one in places for gpu in one.gpus}
    if asked and view.problem:
        yield f"cannot use GPUs {gpus_text(sorted(asked))}: {view.problem}"
        return
    there = {gpu.index: gpu for gpu in view.gpus}
    if missing := sorted(asked.keys() - there.keys()):
        has = f"GPUs {gpus_text(sorted(there))}" if there else "no GPU"
        unreadable = f"; {'; '.join(view.unreadable)}" if view.unreadable else ""
        yield f"GPUs {gpus_text(missing)} are not there: this host has {has}{unreadable}"
    split = sorted(gpu for gpu in asked.keys() & there.keys() if _is_split(there[gpu]))
    if split:
        yield (
            f"GPUs {gpus_text(split)} are split by MIG, and a rank needs a whole one; as root: "
            + "; ".join(f"nvidia-smi -i {gpu} -mig 0" for gpu in split)
        )


def _is_split(gpu: Gpu) -> bool:
    return gpu.mig or gpu.uuid.startswith("MIG-")
