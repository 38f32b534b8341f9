"""NUMA nodes from a folder that stands for sysfs."""

from pathlib import Path

import pytest

from dsv4ctl import topology


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(("said", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None)])
def test_a_device_is_on_the_node_that_the_firmware_tells(tmp_path: Path, said: str, node: int | None) -> None:
    write(tmp_path / "bus/pci/devices/0000:1b:00.0/numa_node", said)

    assert topology.numa_node("0000:1b:00.0", tmp_path) == node


def test_a_device_that_is_not_there_is_on_no_node(tmp_path: Path) -> None:
    assert topology.numa_node("0000:1b:00.0", tmp_path) is None


def test_the_cpus_of_a_node_are_counted_out(tmp_path: Path) -> None:
    write(tmp_path / "devices/system/node/node1/cpulist", "2-4,8,10-11\n")
    write(tmp_path / "devices/system/node/node2/cpulist", "\n")  # memory without CPUs, as on CXL

    assert topology.cpus_of_node(1, tmp_path) == (2, 3, 4, 8, 10, 11)
    assert topology.cpus_of_node(2, tmp_path) == topology.cpus_of_node(7, tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "numbers"), [("", ()), ("\n", ()), ("7\n", (7,)), ("30001,30011-30013\n", (30001, 30011, 30012, 30013))]
)
def test_the_kernels_lists_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert topology.parse_list(text) == numbers


def test_this_host_answers_as_well() -> None:
    assert isinstance(topology.cpus_of_node(0), tuple)
