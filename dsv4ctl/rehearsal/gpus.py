"""Stand-in GPUs: eight of 96 GiB on two NUMA nodes, seen as real ones are: by the program `dsv4ctl-nvml` and in sysfs.

A stand-in engine says what it holds in the ledger: the file /run/standin-gpus/GPU/PID holds a number of bytes. GPU is a
UUID or an index in PCI order, as in CUDA_VISIBLE_DEVICES.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4ctl.procstat import parse_stat

if TYPE_CHECKING:
    from dsv4ctl.rehearsal.private import Machine

LEDGER = Path("/run/standin-gpus")
COUNT = 8
NODES = 2
TOTAL_BYTES = 96 * 2**30
# What NVML's v2 memory info shows as reserved on an idle H200, and does not count as used.
RESERVED_BYTES = 645 * 2**20
DRIVER = "580.159.03"

FOLDER = "/run/rehearsal"
# ProtectSystem=strict makes /run read-only for a unit, but not /dev; so the ledger lies there, as real GPUs do.
LAY = """
place() {
  if [ ! -d "$2" ]; then
    parent=$2
    while [ ! -d "$parent" ]; do parent=${parent%/*}; done
    mkdir -p "/run/rehearsal/layers$parent/upper" "/run/rehearsal/layers$parent/work"
    layers="upperdir=/run/rehearsal/layers$parent/upper,workdir=/run/rehearsal/layers$parent/work"
    mount -t overlay -o "lowerdir=$parent,$layers" overlay "$parent"
    mkdir -p "$2"
  fi
  mount --bind "$1" "$2"
}
place /run/rehearsal/pci /sys/bus/pci/devices
place /run/rehearsal/node /sys/devices/system/node
if [ -e "$0" ]; then
  mount --bind /run/rehearsal/dsv4ctl-nvml "$0"
else
  cp /run/rehearsal/dsv4ctl-nvml /usr/local/bin/
fi
index=0
for uuid; do
  mkdir -p "/dev/standin-gpus/$uuid"
  chmod 1777 "/dev/standin-gpus/$uuid"
  ln -s "$uuid" "/dev/standin-gpus/$index"
  # What a process with memory on it has open, by which a pid of the driver's is believed.
  : >"/dev/nvidia$index"
  chmod 0666 "/dev/nvidia$index"
  index=$((index + 1))
done
ln -s /dev/standin-gpus /run/standin-gpus
"""


def uuid(index: int) -> str:
    """The UUID of a stand-in GPU."""
    return f"GPU-57a4d111-0000-4000-8000-00000000000{index}"


def pci_address(index: int) -> str:
    """The PCI address of a stand-in GPU as sysfs spells it."""
    return f"0000:{0x1B + 0x10 * index:02x}:00.0"


def node(index: int) -> int:
    """The NUMA node of a stand-in GPU: the first half of them on 0, the second on 1."""
    return index * NODES // COUNT


def install(machine: "Machine") -> None:
    """Put the stand-in GPUs into a machine."""
    for path, text in sysfs().items():
        machine.write(f"{FOLDER}/{path}", text)
    script = f"#!{sys.executable} -P\nfrom dsv4ctl.rehearsal.gpus import main\n\nmain()\n"
    machine.write(f"{FOLDER}/dsv4ctl-nvml", script, mode=0o755)
    program = Path(sys.executable).parent / "dsv4ctl-nvml"
    machine.run(("sh", "-euc", LAY, program, *map(uuid, range(COUNT))), timeout_s=10)


def sysfs() -> dict[str, str]:
    """The files of the two sysfs folders. The CPUs are this host's real ones, so that a unit can be bound to them."""
    cpus = sorted(os.sched_getaffinity(0))
    # A unit bound to half of very few CPUs would take too long; then both nodes have them all.
    half = len(cpus) // NODES if len(cpus) >= 2 * NODES else len(cpus)
    files = {f"node/{name}": f"0-{NODES - 1}\n" for name in ("online", "possible", "has_cpu", "has_memory")}
    files["node/node0/cpulist"] = ",".join(map(str, cpus[:half])) + "\n"
    files["node/node1/cpulist"] = ",".join(map(str, cpus[half:] or cpus)) + "\n"
    for index in range(COUNT):
        device = f"pci/{pci_address(index)}"
        files |= {
            f"{device}/numa_node": f"{node(index)}\n",
            f"{device}/vendor": "0x10de\n",
            f"{device}/class": "0x030200\n",
        }
    return files


def held(index: int, ledger: Path = LEDGER) -> dict[int, int]:
    """Pid -> bytes that it holds on a GPU. What an ended process left in the ledger is free, as with a driver."""
    return {int(file.name): _bytes(file) for file in sorted((ledger / uuid(index)).iterdir()) if _lives(file.name)}


def _lives(name: str) -> bool:
    """Whether a ledger file is whole, as its name is then a pid, and its process lives."""
    try:
        return name.isdecimal() and not parse_stat(Path(f"/proc/{name}/stat").read_text(errors="replace")).ended
    except (FileNotFoundError, ProcessLookupError):
        return False


def _bytes(file: Path) -> int:
    try:
        return int(file.read_text())
    except FileNotFoundError:  # given back since we listed the folder
        return 0


def seen(index: int) -> dict[str, object]:
    """One GPU as `dsv4ctl-nvml` prints it."""
    processes = held(index)
    return {
        "index": index,
        "uuid": uuid(index),
        "name": "NVIDIA Stand-in 96GB",
        "pci_address": pci_address(index),
        "mig": False,
        "total_bytes": TOTAL_BYTES,
        "used_bytes": sum(processes.values()),
        "reserved_bytes": RESERVED_BYTES,
        "processes": [{"pid": pid, "used_bytes": size} for pid, size in processes.items()],
    }


def main() -> None:
    """What stands in for the program `dsv4ctl-nvml` inside the machine."""
    if sys.argv[1:] == ["wait"] and not sys.stdin.readline():
        return
    said = {"driver": DRIVER, "gpus": [seen(index) for index in range(COUNT)], "unreadable": []}
    sys.stdout.write(json.dumps(said) + "\n")
