"""Topologies -> the node that a role is bound to, or why to none; the engine's own binding never contradicts it."""

from collections.abc import Mapping

import pytest

from dsv4ctl import placement
from dsv4ctl.model import Binding, Gpu, Numa, NumaNode
from dsv4ctl.placement import Placement
from tests import releases

LOW, HIGH = (0, 1, 2, 3), (4, 5, 6, 7)
CPUS = {0: tuple(range(8)), 1: tuple(range(8, 16))}


def gpus(*indices: int) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in releases.gpus().gpus if gpu.index in indices)


def numa(
    near: Mapping[int, tuple[int, ...]], cpus: Mapping[int, tuple[int, ...]] = CPUS, usable: tuple[int, ...] = (0, 1)
) -> Numa:
    """A host with these nodes, and GPUs by index near to these."""
    address = {gpu.index: gpu.pci_address for gpu in releases.gpus().gpus}
    return Numa(
        nodes=tuple(NumaNode(node=node, cpus=own) for node, own in cpus.items()),
        usable=frozenset(usable),
        near={address[index]: nodes for index, nodes in near.items()},
    )


HALVES = numa({index: (index // 4,) for index in range(8)})
INTERLEAVED = numa({index: (index % 2,) for index in range(8)})
BOTH = numa(dict.fromkeys(range(8), (0, 1)))
UNTOLD = numa(dict.fromkeys(range(8), ()))
ONE_NODE = numa(dict.fromkeys(range(8), (0,)), {0: CPUS[0]}, (0,))
ONE_NODE_UNTOLD = numa(dict.fromkeys(range(8), ()), {0: CPUS[0]}, (0,))
MEMORY_ONLY = numa({index: (index // 4,) for index in range(8)}, {0: CPUS[0], 1: ()})
KERNEL_HAS_0 = numa({index: (index // 4,) for index in range(8)}, usable=(0,))


@pytest.mark.parametrize(("asked", "node"), [(LOW, 0), (HIGH, 1), ((0,), 0), ((5, 7), 1)])
def test_b65_a_role_is_bound_to_the_node_and_the_cpus_of_its_own_gpus(asked: tuple[int, ...], node: int) -> None:
    placed = placement.place(gpus(*asked), HALVES)
    assert placed.binding == Binding(node=node, cpus=CPUS[node])
    assert (placed.warns, placed.because) == (False, "")


def test_b65_interleaved_gpus_are_bound_by_where_each_is_and_not_by_their_numbers() -> None:
    """B65: the node is that of each GPU's own PCI address."""
    assert placement.place(gpus(1, 3, 5, 7), INTERLEAVED).binding == Binding(node=1, cpus=CPUS[1])
    assert placement.place(gpus(*LOW), INTERLEAVED) == Placement(
        because="it spans nodes: GPUs 0,2 on 0 and GPUs 1,3 on 1", warns=True, engine_may_bind=True
    )


@pytest.mark.parametrize(
    ("host", "because"),
    [
        (BOTH, "GPUs 4-7 are each near nodes 0 and 1"),
        (UNTOLD, "the firmware does not tell the NUMA node of GPUs 4-7"),
        (numa({4: (1,), 5: (1,), 6: (), 7: (1,)}), "the firmware does not tell the NUMA node of GPU 6"),
        (numa({4: (1,), 5: (0, 1), 6: (1,), 7: (1,)}), "GPU 5 is near nodes 0 and 1"),
        (MEMORY_ONLY, "node 1 has no CPUs"),
        (KERNEL_HAS_0, "the kernel has no node 1"),
    ],
)
def test_b65_what_is_not_certain_binds_nothing_says_why_and_stops_the_engine_from_guessing(
    host: Numa, because: str
) -> None:
    assert placement.place(gpus(*HIGH), host) == Placement(because=because, warns=True, engine_may_bind=False)


@pytest.mark.parametrize("host", [ONE_NODE, ONE_NODE_UNTOLD, Numa()])
def test_one_node_needs_no_binding_and_no_warning(host: Numa) -> None:
    placed = placement.place(gpus(*LOW), host)
    assert (placed.binding, placed.warns) == (None, False)
    assert placement.words(placed) == "no binding, because this host has one NUMA node"


def test_a_role_without_gpus_is_bound_nowhere() -> None:
    assert placement.words(placement.place((), HALVES)) == "no binding, because it uses no GPU"


def test_a_role_that_the_operator_binds_is_not_bound_twice() -> None:
    placed = placement.place(gpus(*LOW), HALVES, bound_by_engine=True)
    assert (placed.binding, placed.engine_may_bind) == (None, True)
    assert "--numa-node" in placed.because


@pytest.mark.parametrize("host", [HALVES, INTERLEAVED, BOTH, UNTOLD, ONE_NODE, MEMORY_ONLY, KERNEL_HAS_0])
@pytest.mark.parametrize("asked", [LOW, HIGH, (0,), (7,), (0, 2, 4, 6), (3, 4), tuple(range(8))])
def test_b65_a_binding_is_always_a_node_that_the_kernel_has_with_all_of_its_own_cpus(
    host: Numa, asked: tuple[int, ...]
) -> None:
    binding = placement.place(gpus(*asked), host).binding
    nodes = {node for gpu in gpus(*asked) for node in host.near[gpu.pci_address]}
    assert binding is None or (nodes == {binding.node} and binding.cpus == CPUS[binding.node])
    assert binding is None or binding.node in host.usable


def test_a_binding_is_told_in_the_kernels_own_list_format() -> None:
    placed = placement.place(gpus(*LOW), numa(dict.fromkeys(LOW, (0,)), {0: (0, 1, 2, 3, 64, 66, 67), 1: ()}))
    assert placement.words(placed) == "node 0, CPUs 0-3,64,66-67"
