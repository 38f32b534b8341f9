"""The part of the gate that looks at GPUs: each is the one that was deployed on, and back at its idle memory."""

from dataclasses import dataclass

from dsv4ctl import gpus, procs
from dsv4ctl.blame import gpus as memory
from dsv4ctl.blame import words
from dsv4ctl.blame.gpus import Proofs
from dsv4ctl.model import Gpu, GpuView, Instance, SuperviseExit
from dsv4ctl.problems import Problem
from dsv4ctl.supervise.outcome import Failed

# What the driver and its library say of themselves after an upgrade that nobody rebooted for.
MISMATCH = "version mismatch"


@dataclass(frozen=True, slots=True)
class Occupied:
    """What a start needs is in use by nobody whom we could end, and will be free by itself: memory of GPUs after a
    crash, a port after its last connection. `words`: who and what; `keeper`: who lets go of it; `exit`: if he does not.
    """

    words: str
    keeper: str = "the driver"
    exit: SuperviseExit = SuperviseExit.GPU


def check(instance: Instance, query: gpus.Query | None = None) -> Failed | Occupied | None:
    """Look at the GPUs of an instance; None: all of them are there and idle. Nothing is looked at without GPUs.

    `query`: one that was prepared for it.
    """
    named = dict(zip(instance.gpus, instance.gpu_uuids, strict=False))
    if not named:
        return None
    try:
        view = query.view() if query else gpus.read()
    except Problem as problem:
        return refused(str(problem), problem.hint)
    if why := memory.missing(view, named):
        return refused(why, _advice(why))
    wanted = frozenset(named.values())
    busy = [gpu for gpu in view.gpus if gpu.uuid in wanted and memory.busy(gpu)]
    return Occupied(_who(view, busy)) if busy else None


def refused(why: str, advice: str, exit_: SuperviseExit = SuperviseExit.GPU) -> Failed:
    """The gate stays closed."""
    return Failed(exit=exit_, words=f"cannot start: {why}", advice=advice)


def _advice(why: str) -> str:
    if MISMATCH in why.lower():
        return "the driver was upgraded under a running kernel module: reboot the host"
    return "nvidia-smi -L, then dsv4ctl deploy"


def _who(view: GpuView, busy: list[Gpu]) -> str:
    """Who is on each, as far as it can be told from inside a unit, which may not look into everybody's files."""
    listed = {process.pid for gpu in view.gpus for process in gpu.processes}
    there = {pid: process for pid in listed if (process := procs.read(pid))}
    proofs = Proofs(processes=there, hidden=frozenset(there))
    return "; ".join(words.gpu(gpu, memory.holds(gpu, proofs)) for gpu in busy)
