"""Which NUMA node a GPU hangs on, and which CPUs that node has, from sysfs."""

from pathlib import Path

SYSFS = Path("/sys")


def numa_node(pci_address: str, sysfs: Path = SYSFS) -> int | None:
    """The NUMA node of a PCI device ("0000:1b:00.0"); None: the firmware does not tell (-1), or there is none such."""
    try:
        node = int((sysfs / "bus/pci/devices" / pci_address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def cpus_of_node(node: int, sysfs: Path = SYSFS) -> tuple[int, ...]:
    """The CPUs of a NUMA node in ascending order; () when there is no such node, or it has memory only."""
    try:
        return parse_list((sysfs / f"devices/system/node/node{node}/cpulist").read_text())
    except OSError:
        return ()


def parse_list(text: str) -> tuple[int, ...]:
    """Read the kernel's list format: "0-2,7" is 0, 1, 2 and 7."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(sorted(found))
