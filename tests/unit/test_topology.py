"""NUMA nodes from a folder that stands for sysfs, and from the kernel itself."""

from pathlib import Path

import pytest

from dsv4ctl import placement, topology
from dsv4ctl.model import Numa, NumaNode

GPU = "0000:1b:00.0"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def tree(folder: Path, nodes: dict[int, str], **devices: str) -> Path:
    """A sysfs with these nodes (number: CPUs) and GPUs (bus: numa_node, then its local CPUs if it tells them)."""
    for node, cpus in nodes.items():
        write(folder / f"devices/system/node/node{node}/cpulist", f"{cpus}\n")
    for bus, said in devices.items():
        number, _, local = said.partition(" ")
        device = folder / f"bus/pci/devices/0000:{bus}:00.0"
        files = {
            "numa_node": number,
            "vendor": "0x10de",
            "class": "0x030200",
            **({"local_cpulist": local} if local else {}),
        }
        for name, text in files.items():
            write(device / name, f"{text}\n")
    return folder


@pytest.mark.parametrize(("said", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None)])
def test_a_device_is_on_the_node_that_the_firmware_tells(tmp_path: Path, said: str, node: int | None) -> None:
    write(tmp_path / f"bus/pci/devices/{GPU}/numa_node", said)

    assert topology.numa_node(GPU, tmp_path) == node


def test_a_device_that_is_not_there_is_on_no_node(tmp_path: Path) -> None:
    assert topology.numa_node(GPU, tmp_path) is None


@pytest.mark.parametrize(
    ("said", "near"),
    [
        ("1 4-7", (1,)),
        ("1", (1,)),
        ("0 0-7", (0, 1)),
        # The kernel calls all CPUs local to a device of which it knows nothing.
        ("-1 0-7", ()),
        ("-1 4-7", (1,)),
        ("-1", ()),
        # A node of memory only: no CPU is local to its devices.
        ("2", (2,)),
    ],
)
def test_b65_a_device_is_near_to_the_nodes_that_number_and_cpus_tell(
    tmp_path: Path, said: str, near: tuple[int, ...]
) -> None:
    sysfs = tree(tmp_path, {0: "0-3", 1: "4-7", 2: ""}, **{"1b": said})

    assert topology.near(GPU, sysfs) == near
    assert topology.numa_node(GPU, sysfs) == (near[0] if len(near) == 1 else None)


def test_nodes_are_read_in_the_order_of_their_numbers_and_all_of_another_tree_are_usable(tmp_path: Path) -> None:
    sysfs = tree(tmp_path, {0: "0-1", 10: "4-5", 2: ""}, **{"1b": "10"})

    assert topology.read((GPU, "0000:ff:00.0"), sysfs) == Numa(
        nodes=(NumaNode(node=0, cpus=(0, 1)), NumaNode(node=2, cpus=()), NumaNode(node=10, cpus=(4, 5))),
        usable=frozenset({0, 2, 10}),
        near={GPU: (10,), "0000:ff:00.0": ()},
    )


def test_a_tree_without_nodes_has_none(tmp_path: Path) -> None:
    assert topology.read((), tmp_path) == Numa()


def test_the_gpus_of_a_tree_are_the_nvidia_adapters_in_bus_order(tmp_path: Path) -> None:
    sysfs = tree(tmp_path, {0: "0-1", 1: "2-3"}, **{"9b": "1", "1b": "0", "2b": "0", "3b": "0"})
    write(sysfs / "bus/pci/devices/0000:2b:00.0/class", "0x020000\n")
    write(sysfs / "bus/pci/devices/0000:3b:00.0/vendor", "0x1002\n")

    assert [(gpu.index, gpu.pci_address, gpu.numa_node) for gpu in topology.gpus(sysfs).gpus] == [
        (0, "0000:1b:00.0", 0),
        (1, "0000:9b:00.0", 1),
    ]


def test_the_cpus_of_a_node_are_counted_out(tmp_path: Path) -> None:
    write(tmp_path / "devices/system/node/node1/cpulist", "2-4,8,10-11\n")
    write(tmp_path / "devices/system/node/node2/cpulist", "\n")  # memory without CPUs, as on CXL

    assert topology.cpus_of_node(1, tmp_path) == (2, 3, 4, 8, 10, 11)
    assert topology.cpus_of_node(2, tmp_path) == topology.cpus_of_node(7, tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "numbers"), [("", ()), ("\n", ()), ("7\n", (7,)), ("30001,30011-30013\n", (30001, 30011, 30012, 30013))]
)
def test_the_kernels_lists_are_read_and_written(text: str, numbers: tuple[int, ...]) -> None:
    assert topology.parse_list(text) == numbers
    assert topology.parse_list(placement.list_text(numbers)) == numbers


def test_this_host_answers_as_well_and_what_is_usable_comes_from_its_kernel() -> None:
    found = topology.read(())
    assert found.usable
    assert not found.nodes or found.usable & {one.node for one in found.nodes}


@pytest.mark.parametrize("left", ["dev/nvidia0", "dev/nvidiactl", "dev/dxg", "driver", "pci"])
def test_a_gpu_is_there_by_any_of_its_signs_and_not_without_one(tmp_path: Path, left: str) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/null").touch()

    def found() -> bool:
        return topology.has_gpu(tmp_path / "sys", tmp_path / "dev", tmp_path / "driver")

    assert not found()
    if left == "pci":
        device = tmp_path / "sys/bus/pci/devices/0000:1b:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    else:
        (tmp_path / left).touch()
    assert found()
