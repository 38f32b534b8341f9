"""The program `dsv4ctl-nvml`: prints what the NVIDIA driver says of all GPUs, as one JSON object.

A driver that hangs takes this program with it, and not the one that asked. It prints either

    {"driver": "580.159.03",
     "gpus": [{"index": 0, "uuid": "GPU-…", "name": "NVIDIA H200", "pci_address": "0000:1b:00.0", "mig": false,
               "total_bytes": 150754820096, "used_bytes": 0, "reserved_bytes": 644939776,
               "processes": [{"pid": 4711, "used_bytes": 8589934592}]}],
     "unreadable": ["GPU 3: GPU is lost"]}

in the order of PCI addresses, or {"problem": "why not"}; its exit status is 0 either way. Null where the driver does
not tell: `used_bytes` and `reserved_bytes` of a GPU, `used_bytes` of a process, and the whole of `processes`. Also,
`reserved_bytes` is null where `used_bytes` still counts the driver's reserve (memory info v1). "mig" and "unreadable"
may be missing.

Given the word "wait" it comes up, and asks the driver when it has read a line; never, when there is none to read.
"""

import json
import sys
from contextlib import suppress

import pynvml


def main() -> None:
    """Print what the driver says."""
    if sys.argv[1:] == ["wait"] and not sys.stdin.readline():
        return
    sys.stdout.write(json.dumps(answer()) + "\n")


def answer() -> dict[str, object]:
    """All GPUs, or the problem, as printed."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"problem": f"cannot ask the NVIDIA driver: {str(error).rstrip('.')}"}
    try:
        return _all()
    except pynvml.NVMLError as error:
        return {"problem": f"cannot count the GPUs: {str(error).rstrip('.')}"}
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _all() -> dict[str, object]:
    gpus, unreadable = [], []
    for index in range(pynvml.nvmlDeviceGetCount()):
        # A GPU that fell off the bus must neither hide the others nor change their numbers.
        try:
            gpus.append({"index": index, **_gpu(pynvml.nvmlDeviceGetHandleByIndex(index))})
        except pynvml.NVMLError as error:
            unreadable.append(f"GPU {index}: {error}")
    # The driver numbers by PCI address already, as CUDA_DEVICE_ORDER=PCI_BUS_ID does; the order is a promise here.
    gpus.sort(key=lambda gpu: str(gpu["pci_address"]))
    return {"driver": _text(pynvml.nvmlSystemGetDriverVersion()), "gpus": gpus, "unreadable": unreadable}


def _gpu(handle: object) -> dict[str, object]:
    return {
        "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
        "name": _text(pynvml.nvmlDeviceGetName(handle)),
        "pci_address": sysfs_address(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        "mig": _is_split(handle),
        **_memory(handle),
        "processes": _processes(handle),
    }


def _is_split(handle: object) -> bool:
    """Whether the GPU is split by MIG now; one that cannot be is not."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _memory(handle: object) -> dict[str, int | None]:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError:  # a driver before 510
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return {"total_bytes": memory.total, "used_bytes": memory.used, "reserved_bytes": None}
    return {"total_bytes": memory.total, "used_bytes": memory.used, "reserved_bytes": memory.reserved}


def _processes(handle: object) -> list[dict[str, int | None]] | None:
    """The processes on a GPU; None where the platform has no such list (WSL, vGPU), which is not an empty one."""
    try:
        found = list(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except pynvml.NVMLError:
        return None
    for ask in (pynvml.nvmlDeviceGetGraphicsRunningProcesses, pynvml.nvmlDeviceGetMPSComputeRunningProcesses):
        with suppress(pynvml.NVMLError):
            found += ask(handle)
    # A process that computes and draws stands in both lists with all its memory.
    held: dict[int, int | None] = {}
    for process in found:
        held[process.pid] = process.usedGpuMemory if held.get(process.pid) is None else held[process.pid]
    return [{"pid": pid, "used_bytes": used} for pid, used in sorted(held.items())]


def sysfs_address(bus_id: str) -> str:
    """A PCI address as sysfs writes it: NVML's "00000000:1B:00.0" is "0000:1b:00.0"."""
    domain, rest = bus_id.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _text(said: str | bytes) -> str:
    # Releases of nvidia-ml-py before 11.5 return bytes.
    return said.decode() if isinstance(said, bytes) else said


if __name__ == "__main__":
    main()
