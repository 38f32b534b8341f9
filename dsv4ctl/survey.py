"""This host's NUMA nodes and GPUs, and where a mode's roles would be placed. Changes nothing."""

from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import gpus, placement, topology
from dsv4ctl.model import GpuView, HostSpec, Numa, RoleShape
from dsv4ctl.placement import Placement
from dsv4ctl.release import place


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlaced:
    """A role of the mode and its placement; `missing` are the GPUs that it asks for and this host has not."""

    name: str
    shape: RoleShape
    placement: Placement
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found, and the roles of the mode on it."""

    mode: str
    numa: Numa
    gpus: GpuView
    roles: tuple[RolePlaced, ...]


def look(spec: HostSpec, sysfs: Path = topology.SYSFS) -> Survey:
    """Look at this host, or at the sysfs tree of another, whose GPUs are then those that the tree shows."""
    view = gpus.read() if sysfs == topology.SYSFS else topology.gpus(sysfs)
    numa = topology.read((gpu.pci_address for gpu in view.gpus), sysfs)
    named = zip(place.names(spec.mode.roles), spec.mode.roles, strict=True)
    roles = tuple(_role(name, shape, view, numa, own=place.binds_itself(spec)) for name, shape in named)
    return Survey(mode=spec.mode.name, numa=numa, gpus=view, roles=roles)


def _role(name: str, shape: RoleShape, view: GpuView, numa: Numa, *, own: bool) -> RolePlaced:
    there = tuple(gpu for gpu in view.gpus if gpu.index in shape.gpus)
    missing = tuple(sorted(set(shape.gpus) - {gpu.index for gpu in there}))
    if missing:
        because = f"this host has no GPU {placement.list_text(missing)}"
        return RolePlaced(name=name, shape=shape, placement=Placement(because=because, warns=True), missing=missing)
    return RolePlaced(name=name, shape=shape, placement=placement.place(there, numa, bound_by_engine=own))
