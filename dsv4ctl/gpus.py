"""The GPUs of this host, read by a program of our own so that a hanging driver takes that program and not us."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsv4ctl import child, topology
from dsv4ctl.model import Gpu, GpuProcess, GpuView
from dsv4ctl.problems import CannotRun, Problem

PROGRAM = "dsv4ctl-nvml"


def read(timeout_s: float = 10, sysfs: Path = topology.SYSFS) -> GpuView:
    """All GPUs in the order of their PCI addresses, or in the view's `problem` why they cannot be read.

    The program is ended after `timeout_s`, or left behind when the driver holds it in uninterruptible sleep. Raises
    Problem when it answers what it never should.
    """
    try:
        done = child.run([program()], timeout_s=timeout_s)
    except child.TimedOut as error:
        left = " and cannot be ended" if error.abandoned else ""
        return GpuView(problem=f"GPU query hung for {timeout_s:g} s{left}")
    except CannotRun as error:
        return GpuView(problem=str(error))
    return parse(done.stdout, sysfs)


def parse(text: str, sysfs: Path = topology.SYSFS) -> GpuView:
    """Read what `dsv4ctl-nvml` prints; its schema stands in nvml.py. Raises Problem for anything else."""
    try:
        said = json.loads(text)
        if "problem" in said:
            return GpuView(problem=str(said["problem"]))
        return GpuView(
            gpus=tuple(_gpu(gpu, sysfs) for gpu in said["gpus"]),
            driver=said["driver"],
            unreadable=tuple(said.get("unreadable", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        why = f"it does not say {error}" if isinstance(error, KeyError) else str(error)
        raise Problem(f"cannot understand what {PROGRAM} says of the GPUs: {why}", hint=PROGRAM) from None


def program() -> str | Path:
    """The program that was installed with this interpreter's packages, else the one on PATH."""
    beside = Path(sys.executable).parent / PROGRAM
    return beside if beside.is_file() else PROGRAM


def _gpu(said: Mapping[str, Any], sysfs: Path) -> Gpu:
    processes = said["processes"]
    return Gpu(
        index=said["index"],
        uuid=said["uuid"],
        name=said["name"],
        pci_address=said["pci_address"],
        total_bytes=said["total_bytes"],
        used_bytes=said["used_bytes"],
        reserved_bytes=said["reserved_bytes"],
        processes=tuple(GpuProcess(pid=one["pid"], used_bytes=one["used_bytes"]) for one in processes or ()),
        processes_told=processes is not None,
        mig=said.get("mig", False),
        numa_node=topology.numa_node(said["pci_address"], sysfs),
    )
