"""A role's GPUs on this host's NUMA nodes -> the node that its unit is bound to, or why to none. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsv4ctl.model import Binding, Gpu, Numa


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a role runs. Without a binding `because` says why, and `warns` whether its operator should know.

    `engine_may_bind`: the engine's own binding, which takes the first node that the driver names, does no harm here.
    """

    binding: Binding | None = None
    because: str = ""
    warns: bool = False
    engine_may_bind: bool = False


def place(gpus: Sequence[Gpu], numa: Numa, *, bound_by_engine: bool = False) -> Placement:
    """The node of a role on `gpus`: one that all of them are near to, that has CPUs, and that the kernel really has.

    `bound_by_engine`: the operator binds the ranks with an option of the engine (--numa-node).
    """
    if not gpus:
        return Placement(because="it uses no GPU", engine_may_bind=True)
    if len(numa.nodes) < 2:
        return Placement(because="this host has one NUMA node", engine_may_bind=True)
    if bound_by_engine:
        return Placement(because="engine.args binds its ranks (--numa-node)", engine_may_bind=True)
    near = {gpu.index: numa.near.get(gpu.pci_address, ()) for gpu in gpus}
    if because := _untold(near):
        return Placement(because=because, warns=True)
    nodes = sorted({node for (node,) in near.values()})
    if len(nodes) > 1:
        # Each rank on the node of its own GPU is the engine's own default, and right here.
        return Placement(because=f"it spans nodes: {_spread(near)}", warns=True, engine_may_bind=True)
    return _on(nodes[0], numa)


def _untold(near: dict[int, tuple[int, ...]]) -> str:
    """Why the nodes of these GPUs are not known; '' when each has exactly one."""
    unknown = [gpu for gpu, nodes in near.items() if not nodes]
    several = {gpu: nodes for gpu, nodes in near.items() if len(nodes) > 1}
    if unknown:
        return f"the firmware does not tell the NUMA node of {_gpus(unknown)}"
    if several:
        nodes = sorted({node for found in several.values() for node in found})
        return f"{_gpus(several)} {'is' if len(several) == 1 else 'are each'} near nodes {_and(map(str, nodes))}"
    return ""


def _on(node: int, numa: Numa) -> Placement:
    cpus = next((one.cpus for one in numa.nodes if one.node == node), ())
    if not cpus:
        return Placement(because=f"node {node} has no CPUs", warns=True)
    if node not in numa.usable:
        return Placement(because=f"the kernel has no node {node}", warns=True)
    return Placement(binding=Binding(node=node, cpus=cpus))


def _spread(near: dict[int, tuple[int, ...]]) -> str:
    nodes = sorted({found[0] for found in near.values()})
    return _and(f"{_gpus(g for g, found in near.items() if found[0] == node)} on {node}" for node in nodes)


def _gpus(indices: Iterable[int]) -> str:
    listed = tuple(indices)
    return f"GPU{'s' if len(listed) > 1 else ''} {list_text(listed)}"


def _and(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def words(placement: Placement) -> str:
    """A placement for people: "node 0, CPUs 0-31", or "no binding, because it spans nodes: …"."""
    if placement.binding is None:
        return f"no binding, because {placement.because}"
    return f"node {placement.binding.node}, CPUs {list_text(placement.binding.cpus)}"


def list_text(numbers: Iterable[int]) -> str:
    """Numbers in the kernel's list format, which systemd reads too: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
