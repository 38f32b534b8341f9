"""What the driver says of a GPU's memory and processes, and how much of it is believed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsv4ctl import who
from dsv4ctl.blame.scene import GpuHold
from dsv4ctl.model import Gpu, GpuView, Process
from dsv4ctl.quantity import bytes_text

# Less than any CUDA context takes (about 500 MiB), more than a display or a monitor does.
IDLE_BYTES = 256 * 2**20
# A driver before 510 counts its own reserve as used: 645 MB of 141 GB on an H200.
RESERVE_SHARE = 0.006


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """What /proc says of the pids on GPUs. `nodes`: pid -> device nodes of the driver that it has open or mapped.

    `hidden`: pids whose files may not be looked into. `own_pids`: our pid namespace is the kernel's first one, by whose
    numbers the driver counts. `leaving`: pids of processes that are on their way out.
    """

    processes: Mapping[int, Process] = field(default_factory=dict)
    nodes: Mapping[int, frozenset[str]] = field(default_factory=dict)
    hidden: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    own_pids: bool = True


def baseline_bytes(gpu: Gpu) -> int:
    """Up to here a GPU counts as idle."""
    return IDLE_BYTES + (0 if gpu.reserved_bytes is not None else round(gpu.total_bytes * RESERVE_SHARE))


def busy(gpu: Gpu) -> str:
    """Why a GPU cannot be taken for idle, in words; '' when its memory is at the baseline. Never a guess: not told is
    not free, and neither is stable."""
    if gpu.used_bytes is None:
        return "the driver does not tell how much of its memory is in use (N/A), and that is not taken for none"
    if gpu.used_bytes > baseline_bytes(gpu):
        return f"{bytes_text(gpu.used_bytes)} in use"
    return ""


def missing(view: GpuView, uuids: Mapping[int, str]) -> str:
    """Why GPUs by index and UUID cannot be looked at, in words; '' when each is there, unsplit and the one meant."""
    if view.problem:
        return f"the GPUs cannot be read: {view.problem}"
    there = {gpu.index: gpu for gpu in view.gpus}
    for index, uuid in sorted(uuids.items()):
        gpu = there.get(index)
        if gpu is None or (uuid and gpu.uuid != uuid):
            return _moved(view, index, uuid)
        if gpu.mig:
            return f"GPU {index} is split by MIG: its memory is not one piece (nvidia-smi -i {index} -mig 0)"
    return ""


def holds(gpu: Gpu, proofs: Proofs) -> tuple[GpuHold, ...]:
    """The processes that the driver lists on a GPU, each with what is to be thought of it.

    In a pid namespace of our own the numbers may be those of the host (nvidia-docker#1483): they are believed only when
    all of them fit, as they do with a driver that translates them.
    """
    found = tuple(_hold(gpu, listed.pid, listed.used_bytes, proofs) for listed in gpu.processes)
    if proofs.own_pids or all(hold.believed for hold in found):
        return found
    why = "the driver counts pids of another namespace than ours, so this one is shown and never signalled"
    return tuple(_doubted(hold, why) for hold in found)


def by_device(gpu: Gpu, proofs: Proofs) -> tuple[GpuHold, ...]:
    """Who may hold memory that the driver names nobody for: whoever has its device nodes open.

    A program opens the nodes of GPUs that it does not use as well, so nobody is judged by this.
    """
    listed = {process.pid for process in gpu.processes}
    words = f"has a GPU device open, and the driver lists nobody for GPU {gpu.index}"
    return tuple(
        GpuHold(
            index=gpu.index,
            uuid=gpu.uuid,
            pid=pid,
            process=proofs.processes[pid],
            used_bytes=None,
            believed=False,
            words=words,
        )
        for pid in sorted(proofs.nodes.keys() - listed)
        if pid in proofs.processes
    )


def unattributed(gpu: Gpu) -> str:
    """What to say of memory in use that no process is listed for; '' when there is none such."""
    if not busy(gpu) or gpu.processes:
        return ""
    if not gpu.processes_told:
        return "the platform does not tell which processes are on it"
    return "the driver lists no process on it"


def _hold(gpu: Gpu, pid: int, used_bytes: int | None, proofs: Proofs) -> GpuHold:
    process = proofs.processes.get(pid)
    why = _doubt(pid, process, proofs)
    return GpuHold(
        index=gpu.index,
        uuid=gpu.uuid,
        pid=pid,
        process=process,
        used_bytes=used_bytes,
        believed=not why,
        words=why,
    )


def _doubt(pid: int, process: Process | None, proofs: Proofs) -> str:
    """Why a pid of the driver's is not believed; '' when /proc agrees."""
    if process is None:
        return f"pid {pid} has ended, and the driver has not let go of its memory yet"
    if process.kernel:
        return f"pid {pid} is a thread of the kernel here: the driver counts pids of another namespace"
    if process.state in "ZX":
        return f"pid {pid} ({process.comm}) has ended and waits for its parent, pid {process.parent_pid}, to take note"
    if pid in proofs.hidden:
        return f"{who.words(process)} by the driver's list"
    if pid in proofs.leaving and not proofs.nodes.get(pid):
        return f"pid {pid} ({process.comm}) is on its way out, and the driver has not let go of its memory yet"
    if not proofs.nodes.get(pid):
        return f"pid {pid} ({process.comm}) has no GPU device open here: the driver means another process"
    return ""


def _doubted(hold: GpuHold, why: str) -> GpuHold:
    return GpuHold(
        index=hold.index,
        uuid=hold.uuid,
        pid=hold.pid,
        process=hold.process,
        used_bytes=hold.used_bytes,
        believed=False,
        words=hold.words or f"pid {hold.pid}: {why}",
    )


def _moved(view: GpuView, index: int, uuid: str) -> str:
    elsewhere = next((gpu.index for gpu in view.gpus if gpu.uuid == uuid), None)
    lost = "; ".join(view.unreadable)
    if elsewhere is not None:
        return f"GPU {index} was {uuid} at the deploy, which is GPU {elsewhere} now"
    return f"GPU {index} ({uuid}) is not there any more{': ' + lost if lost else ''}"
