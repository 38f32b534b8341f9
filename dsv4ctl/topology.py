"""Which NUMA node a GPU hangs on, and which CPUs that node has, from sysfs."""

import re
from collections.abc import Iterable
from pathlib import Path

from dsv4ctl.model import Gpu, GpuView, Numa, NumaNode
from dsv4ctl.problems import Problem

SYSFS = Path("/sys")
# What a driver that was ever loaded leaves, answering or not; dxg is WSL's way to a GPU, which is on no PCI bus there.
NODES = ("nvidia[0-9]*", "nvidiactl", "dxg")
DRIVER = Path("/proc/driver/nvidia")
# sysfs may be another's (a rehearsal's, a test's); what the kernel itself has stands here, and a bind to another node
# ends a unit with 242/NUMA_POLICY.
STATUS = Path("/proc/self/status")
NVIDIA = "0x10de"
# PCI classes of graphics adapters: with a screen, and without one as in a server.
DISPLAY = ("0x0300", "0x0302")


def read(pci_addresses: Iterable[str], sysfs: Path = SYSFS) -> Numa:
    """The NUMA nodes of the host, and to which of them each of these devices is near.

    For another tree than this kernel's own /sys every node in it counts as usable: it describes another host.
    """
    nodes = _nodes(sysfs)
    usable = _allowed() if sysfs == SYSFS else frozenset(one.node for one in nodes)
    return Numa(nodes=nodes, usable=usable, near={address: near(address, sysfs) for address in pci_addresses})


def numa_node(pci_address: str, sysfs: Path = SYSFS) -> int | None:
    """The one NUMA node of a PCI device ("0000:1b:00.0"); None: there is none such, or not exactly one node is told."""
    found = near(pci_address, sysfs)
    return found[0] if len(found) == 1 else None


def near(pci_address: str, sysfs: Path = SYSFS) -> tuple[int, ...]:
    """The NUMA nodes that a PCI device is near to: () when the firmware does not tell, several when it names several.

    The kernel writes -1 for a device of which it knows nothing, and calls every CPU local to it.
    """
    device = sysfs / "bus/pci/devices" / pci_address
    local = set(parse_list(_text(device / "local_cpulist")))
    touched = tuple(one.node for one in _nodes(sysfs) if local.intersection(one.cpus)) if local else ()
    try:
        node = int(_text(device / "numa_node"))
    except ValueError:
        node = -1
    if node < 0:
        return touched if len(touched) == 1 else ()
    return touched if len(touched) > 1 else (node,)


def cpus_of_node(node: int, sysfs: Path = SYSFS) -> tuple[int, ...]:
    """The CPUs of a NUMA node in ascending order; () when there is no such node, or it has memory only."""
    return parse_list(_text(sysfs / f"devices/system/node/node{node}/cpulist"))


def gpus(sysfs: Path) -> GpuView:
    """The NVIDIA GPUs of a sysfs tree in PCI bus order, for a tree of another host; it tells no UUID and no memory."""
    devices = sorted((sysfs / "bus/pci/devices").glob("*"))
    found = [device.name for device in devices if _is_gpu(device)]
    return GpuView(gpus=tuple(_gpu(index, address, sysfs) for index, address in enumerate(found)))


def has_gpu(sysfs: Path = SYSFS, dev: Path = Path("/dev"), driver: Path = DRIVER) -> bool:
    """Whether this host has an NVIDIA GPU, or had one of which something is left, whatever its driver says."""
    return driver.exists() or any(any(dev.glob(name)) for name in NODES) or bool(gpus(sysfs).gpus)


def parse_list(text: str) -> tuple[int, ...]:
    """Read the kernel's list format: "0-2,7" is 0, 1, 2 and 7."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(sorted(found))


def _nodes(sysfs: Path) -> tuple[NumaNode, ...]:
    folders = (sysfs / "devices/system/node").glob("node[0-9]*")
    numbers = sorted(int(folder.name.removeprefix("node")) for folder in folders)
    return tuple(NumaNode(node=number, cpus=cpus_of_node(number, sysfs)) for number in numbers)


def _allowed() -> frozenset[int]:
    """The nodes on which the kernel lets this process have memory. Raises Problem where it does not say."""
    allowed = re.search(r"^Mems_allowed_list:\s*(\S+)$", _text(STATUS), re.MULTILINE)
    if allowed is None:
        raise Problem(f"cannot tell the kernel's NUMA nodes: {STATUS} has no Mems_allowed_list")
    return frozenset(parse_list(allowed[1]))


def _is_gpu(device: Path) -> bool:
    return _text(device / "vendor").strip() == NVIDIA and _text(device / "class").startswith(DISPLAY)


def _gpu(index: int, address: str, sysfs: Path) -> Gpu:
    return Gpu(
        index=index,
        uuid="",
        name="",
        pci_address=address,
        total_bytes=0,
        used_bytes=None,
        reserved_bytes=None,
        numa_node=numa_node(address, sysfs),
    )


def _text(file: Path) -> str:
    """The text of a file; '' where there is none."""
    try:
        return file.read_text()
    except OSError:
        return ""
