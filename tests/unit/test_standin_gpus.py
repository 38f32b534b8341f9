"""The stand-in GPUs without a machine: their ledger and their sysfs folders."""

import os
from pathlib import Path

from dsv4ctl import topology
from dsv4ctl.rehearsal import gpus


def test_the_ledger_counts_living_processes_and_whole_files_only(tmp_path: Path) -> None:
    folder = tmp_path / gpus.uuid(2)
    folder.mkdir()
    # A pid above the kernel's largest (2**22) is nobody's.
    for name, text in {f"{os.getpid()}": "4096\n", f"{os.getpid()}.new": "1", f"{2**22 + 1}": "8192\n"}.items():
        (folder / name).write_text(text)

    assert gpus.held(2, tmp_path) == {os.getpid(): 4096}


def test_the_products_topology_reads_two_nodes_of_four_gpus_each(tmp_path: Path) -> None:
    for path, text in gpus.sysfs().items():
        file = tmp_path / path.replace("pci/", "bus/pci/devices/", 1).replace("node/", "devices/system/node/", 1)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    nodes = [topology.numa_node(gpus.pci_address(index), tmp_path) for index in range(gpus.COUNT)]

    assert nodes == [0, 0, 0, 0, 1, 1, 1, 1]
    assert set(topology.cpus_of_node(0, tmp_path) + topology.cpus_of_node(1, tmp_path)) == os.sched_getaffinity(0)
