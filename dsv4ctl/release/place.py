"""Roles -> places on this host: ports, GPUs by UUID, names; and what is wrong with them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dsv4ctl.model import Gpu, GpuView, HostSpec, Machine, Role
from dsv4ctl.modes import gpus_text

# Each instance has ten internal ports, from its rendezvous port on.
PORTS_EACH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A role's place on this host. `gpu_uuids` is shorter than `gpus` where a GPU is not there."""

    role: Role
    tp: int
    port: int
    rendezvous_port: int
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    secrets_file: str | None

    @property
    def name(self) -> str:
        """The instance's name: in this release every role is there once."""
        return str(self.role)

    @property
    def unit(self) -> str:
        """The name of its systemd unit."""
        return f"dsv4-{self.name}.service"

    @property
    def ports(self) -> tuple[tuple[str, int], ...]:
        """Every port it binds, with its job."""
        return (("http", self.port), ("rendezvous", self.rendezvous_port))


def places(spec: HostSpec, machine: Machine) -> tuple[Place, ...]:
    """Every role of the mode in its place, in the order of the mode."""
    uuids = {gpu.index: gpu.uuid for gpu in machine.gpus.gpus}
    return tuple(
        Place(
            role=shape.role,
            tp=shape.tp,
            port=spec.port,
            rendezvous_port=spec.internal_port + PORTS_EACH * index,
            gpus=shape.gpus,
            gpu_uuids=tuple(uuids[gpu] for gpu in shape.gpus if gpu in uuids),
            secrets_file=f"/run/dsv4ctl/{shape.role}/secrets.yaml" if spec.api_key_file else None,
        )
        for index, shape in enumerate(spec.mode.roles)
    )


def port_faults(places: tuple[Place, ...], machine: Machine) -> Iterator[str]:
    """Ports that two jobs share, and ports that the kernel may give to an outgoing connection at any moment."""
    jobs: defaultdict[int, list[str]] = defaultdict(list)
    for one in places:
        for job, port in one.ports:
            jobs[port].append(f"{job} of {one.name}")
    first, last = machine.ephemeral_ports
    for port, users in jobs.items():
        if len(users) > 1:
            yield f"port {port} is used twice: {' and '.join(users)}; give port and internal_port different numbers"
        if first <= port <= last and port not in machine.reserved_ports:
            yield (
                f"port {port} ({' and '.join(users)}) lies in {first}-{last}, where this host takes ports for outgoing "
                f"connections; choose one outside, or reserve it: sysctl -w net.ipv4.ip_local_reserved_ports={port}"
            )


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
