"""Host -> who holds what must be free: processes, sockets, GPUs and /dev/shm, in one look. Changes nothing."""

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dsv4ctl import blame, census, gpus, procs, shm, signs, sockets, threads, who
from dsv4ctl.blame import Blame, GpuHold, Request, Scene, Suspect, Verdict, words
from dsv4ctl.blame import gpus as memory
from dsv4ctl.blame.gpus import Proofs
from dsv4ctl.clock import RealClock
from dsv4ctl.free import Found
from dsv4ctl.model import Gpu, GpuView, Holder, Identity, Instance, Process
from dsv4ctl.problems import ForeignHolder, WrongOption
from dsv4ctl.signs import Signs

# A look that the host changed under is repeated for so long, and so often before what was found of the dead has to do:
# of those that fork and end all the while nobody is left at the end of a look, but their group and signs are told.
LOOKS_FOR_THE_LIVING = 5
PATIENCE_S = 2.0
# What an engine's processes are files of, whatever they call themselves. One of another name is looked at when it holds
# something that was asked for.
INTERPRETERS = ("python", "pypy", "sglang")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What shall be free: ports, GPUs by UUID, and with `everything` all that engines hold, with `adopted` all
    that adopted ones do. `evict` are pids.

    `units`: the names of our own units; `users`: whose leftovers in /dev/shm are ours, by user id.
    """

    ports: frozenset[int] = frozenset()
    gpus: frozenset[str] = frozenset()
    everything: bool = False
    adopted: bool = False
    evict: tuple[int, ...] = ()
    units: frozenset[str] = frozenset()
    users: frozenset[int] = frozenset()

    @property
    def needs_gpus(self) -> bool:
        """Whether who is on the GPUs is to be known for it."""
        return bool(self.gpus) or self.everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Who is there: every process by pid, who is on the GPUs, and who has the ports that are wanted."""

    processes: Mapping[int, Process]
    holds: tuple[GpuHold, ...]
    on_ports: tuple[Holder, ...]

    @property
    def holding(self) -> frozenset[int]:
        """The pids of those who hold something."""
        on_gpus = {hold.pid for hold in self.holds if hold.believed}
        return frozenset(on_gpus | {process.pid for holder in self.on_ports for process in holder.processes})


def look(wanted: Wanted, view: GpuView | None = None) -> Found:
    """Look at the host and judge. `view`: the GPUs as they were read just now, else they are read when wanted.

    A holder that ended while it was looked at may have handed on what it holds, so then it is looked again.
    Raises WrongOption for an --evict that names nobody, ForeignHolder for one that names whom nobody may end, and what
    the rim raises.
    """
    seen = view if view is not None else _read(wanted)
    clock, looks = RealClock(), 0
    began = clock.now()
    while True:
        found, looks = _look(wanted, seen), looks + 1
        is_late = clock.now() - began >= PATIENCE_S
        if _is_settled(found.blame) or (looks >= LOOKS_FOR_THE_LIVING and (is_late or _has_to_do(found.blame))):
            break
    _refuse_spared(wanted.evict, found)
    return found


def _is_settled(found: Blame) -> bool:
    """Whether a look says how things are, and not how they were when it began."""
    if not any(map(_is_stale, found.suspects)):
        return True
    return any(procs.alive(tree.root.identity) for tree in found.trees if not tree.leaving)


def _has_to_do(found: Blame) -> bool:
    """Whether more looks would tell no more: those to be ended are known, or whoever is nobody is hidden from us."""
    stale = [suspect for suspect in found.suspects if _is_stale(suspect)]
    is_hidden = all(suspect.process is None for suspect in stale) and not census.sees_everybody()
    return is_hidden or any(not tree.leaving for tree in found.trees)


def _refuse_spared(evict: tuple[int, ...], found: Found) -> None:
    """Whoever is named and stays all the same is told, not left out."""
    for suspect in found.blame.suspects:
        if suspect.process is None or suspect.process.pid not in evict:
            continue
        if suspect.verdict is Verdict.PROTECTED:
            raise _not_to_be_ended(suspect, words.advice(suspect))
        if suspect.verdict is Verdict.OURS:
            hint = "dsv4ctl teardown   stops it with its unit; a deploy stops what is in its way by itself"
            raise _not_to_be_ended(suspect, hint)


def _not_to_be_ended(suspect: Suspect, hint: str) -> ForeignHolder:
    name = who.words(suspect.process) if suspect.process else "it"
    details = {"holders": (words.values(suspect),)}
    return ForeignHolder(f"cannot evict {name}: {'; '.join(suspect.signs)}", hint=hint, details=details)


def _look(wanted: Wanted, seen: GpuView) -> Found:
    # Whoever has a port is looked at on the spot: by the end of the census he may have forked, and gone.
    on_ports = sockets.holders_on(wanted.ports)
    met = {process.pid for holder in on_ports for process in holder.processes}
    there, shown = census.of(met), signs.of(met)
    processes = there | census.everything()
    known = {pid: shown[pid] for pid, process in there.items() if processes[pid].identity == process.identity}
    holds = gpu_holds(seen, processes, wanted.gpus)
    likely = {pid for pid, process in processes.items() if _may_be_an_engine(process)}
    present = Present(processes=processes, holds=holds, on_ports=on_ports)
    scene = _scene(wanted, present, signs.of((likely | present.holding) - known.keys()) | known)
    request = Request(
        ports=wanted.ports,
        gpus=wanted.gpus,
        everything=wanted.everything,
        adopted=wanted.adopted,
        evict=frozenset(_named(pid, processes) for pid in wanted.evict),
    )
    return Found(
        blame=_with_commands(blame.blame(scene, request)),
        gpus=seen,
        holds=holds,
        segments=shm.leftovers(wanted.users) if wanted.users and os.geteuid() == 0 else (),
        space=shm.space(wanted.users) if wanted.users else None,
    )


def _is_stale(suspect: Suspect) -> bool:
    return suspect.process is None or not procs.alive(suspect.process.identity)


def gpu_holds(view: GpuView, processes: Mapping[int, Process], uuids: frozenset[str]) -> tuple[GpuHold, ...]:
    """Who is on every GPU by the driver's list, and by open device nodes where it names nobody for one of `uuids`."""
    listed = {process.pid for gpu in view.gpus for process in gpu.processes}
    own = census.first_pid_namespace()
    there = listed & processes.keys()
    leaving = frozenset(pid for pid in there if threads.is_exiting(pid))
    proofs = Proofs(processes=processes, nodes=census.device_users(there), leaving=leaving, own_pids=own)
    found = tuple(hold for gpu in view.gpus for hold in memory.holds(gpu, proofs))
    silent = [gpu for gpu in view.gpus if gpu.uuid in uuids and memory.unattributed(gpu)]
    return (*found, *_by_device(silent, processes, own_pids=own)) if silent else found


def units_of(names: Iterable[str]) -> frozenset[str]:
    """Our units among names of units."""
    return frozenset(name for name in names if name.startswith("dsv4-") and name.endswith(".service"))


def users_of(instances: Iterable[Instance]) -> frozenset[int]:
    """The user ids that instances run as; a user that does not exist has left nothing."""
    names = {instance.user or "root" for instance in instances}
    return frozenset(uid for name in names if (uid := _uid(name)) is not None)


def _uid(name: str) -> int | None:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _by_device(silent: list[Gpu], processes: Mapping[int, Process], *, own_pids: bool) -> tuple[GpuHold, ...]:
    candidates = [pid for pid, process in processes.items() if not process.kernel]
    proofs = Proofs(processes=processes, nodes=census.device_users(candidates), own_pids=own_pids)
    return tuple(hold for gpu in silent for hold in memory.by_device(gpu, proofs))


def _read(wanted: Wanted) -> GpuView:
    return gpus.read() if wanted.needs_gpus else GpuView()


def _scene(wanted: Wanted, present: Present, shown: Mapping[int, Signs]) -> Scene:
    engines = {pid for pid, one in shown.items() if one.of_engine}
    elsewhere = sockets.holders_on((), engines) if engines else ()
    return Scene(
        processes=present.processes,
        self_pid=os.getpid(),
        listeners=(*present.on_ports, *(holder for holder in elsewhere if holder.listener.port not in wanted.ports)),
        holds=present.holds,
        environments={pid: one.environment for pid, one in shown.items() if one.environment},
        marked=frozenset(pid for pid, one in shown.items() if one.marked),
        bare=frozenset(pid for pid, one in shown.items() if one.bare),
        units=wanted.units,
        leaving=frozenset(pid for pid in present.holding if pid in shown and shown[pid].leaving),
    )


def _may_be_an_engine(process: Process) -> bool:
    return process.executable.rpartition("/")[2].startswith(INTERPRETERS)


def _named(pid: int, processes: Mapping[int, Process]) -> Identity:
    if pid not in processes:
        raise WrongOption(f"cannot evict pid {pid}: there is no such process", hint="dsv4ctl who")
    return processes[pid].identity


def _with_commands(found: Blame) -> Blame:
    """The same with command lines, for people only and after everything has been decided."""
    return replace(found, suspects=tuple(map(_with_command, found.suspects)))


def _with_command(suspect: Suspect) -> Suspect:
    return replace(suspect, process=census.with_command(suspect.process)) if suspect.process else suspect
