"""What `topology` shows: nodes, GPUs, and the roles of the mode on them. Pure."""

from collections.abc import Iterator

from dsv4ctl import placement, quantity
from dsv4ctl.model import Gpu, Numa, Role
from dsv4ctl.modes import gpus_text
from dsv4ctl.survey import RolePlaced, Survey


def text(found: Survey) -> str:
    """Nodes, then GPUs with the role that would use each, then roles with their placement."""
    return "\n".join((*_nodes(found.numa), "", *_gpus(found), "", f"mode {found.mode}:", *_roles(found)))


def warnings(found: Survey) -> tuple[str, ...]:
    """Roles that are not placed as well as they could be."""
    return tuple(f"{one.name}: {placement.words(one.placement)}" for one in found.roles if one.placement.warns)


def as_json(found: Survey) -> dict[str, object]:
    """The same as values."""
    return {
        "nodes": [
            {"node": one.node, "cpus": list(one.cpus), "usable": one.node in found.numa.usable}
            for one in found.numa.nodes
        ],
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "pci_address": gpu.pci_address,
                "near": list(found.numa.near[gpu.pci_address]),
                "role": _user(found, gpu),
            }
            for gpu in found.gpus.gpus
        ],
        "gpu_problem": found.gpus.problem,
        "mode": found.mode,
        "roles": [_role_values(one) for one in found.roles],
    }


def _role_values(one: RolePlaced) -> dict[str, object]:
    binding = one.placement.binding
    return {
        "name": one.name,
        "role": one.shape.role,
        "tp": one.shape.tp,
        "gpus": list(one.shape.gpus),
        "missing": list(one.missing),
        "node": binding.node if binding else None,
        "cpus": list(binding.cpus) if binding else [],
        "because": one.placement.because,
        "warns": one.placement.warns,
    }


def _nodes(numa: Numa) -> Iterator[str]:
    for one in numa.nodes:
        cpus = f"CPUs {placement.list_text(one.cpus)}" if one.cpus else "no CPUs"
        yield f"NUMA node {one.node}  {cpus}" + ("" if one.node in numa.usable else "  (the kernel has no such node)")
    if not numa.nodes:
        yield "NUMA nodes: the kernel tells none"


def _gpus(found: Survey) -> Iterator[str]:
    if not found.gpus.gpus:
        yield f"GPUs: {found.gpus.problem or 'none'}"
        return
    rows = [("GPU", "PCI address", "NUMA node", "role", "name")]
    for gpu in found.gpus.gpus:
        near = " and ".join(map(str, found.numa.near[gpu.pci_address])) or "not told"
        rows.append((str(gpu.index), gpu.pci_address, near, _user(found, gpu) or "-", _name(gpu)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield from ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _name(gpu: Gpu) -> str:
    return f"{gpu.name}, {quantity.bytes_text(gpu.total_bytes)}" if gpu.name else "-"


def _user(found: Survey, gpu: Gpu) -> str:
    return " and ".join(one.name for one in found.roles if gpu.index in one.shape.gpus)


def _roles(found: Survey) -> Iterator[str]:
    width = max(len(one.name) for one in found.roles)
    for one in found.roles:
        what = "" if one.shape.role is Role.ROUTER else f"tp {one.shape.tp} on {_on(one)}: "
        yield f"  {one.name.ljust(width)}  {what}{placement.words(one.placement)}"


def _on(one: RolePlaced) -> str:
    return f"GPUs {gpus_text(one.shape.gpus)}" if one.shape.gpus else "no GPU"
