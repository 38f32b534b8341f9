"""What must be free -> the steps that free it, and what stands against them. Pure, and a part of plan."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dsv4ctl import cgroups, shared
from dsv4ctl.blame import Blame, GpuHold, Segment, Suspect, Tree, Verdict, gpus, words
from dsv4ctl.model import Gpu, GpuView, Identity, Instance, Keeper, Limits, PortView, Process
from dsv4ctl.problems import ForeignHolder, GpuProblem, Problem
from dsv4ctl.quantity import bytes_text
from dsv4ctl.shared import Space

# A killed process is gone, and its memory back, when the driver has taken its contexts down: minutes on a bad day.
DRIVER_S = float(Limits().driver_s)
# What is left of a server's connections keeps its port for 60 s at most (TIME_WAIT).
PORTS_S = 75.0
# An idle engine ends in 2 to 6 s of SIGTERM, one that waits for a hung scheduler in 19 s.
TERM_S = 25.0
# A worker without its main process has no shutdown of its own to go through.
HEADLESS_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTree:
    """End a stray: TERM to its root, `term_s` to heed it, KILL to whatever is left of it, `kill_s` for that to take
    effect."""

    tree: Tree
    term_s: float
    reason: str
    kill_s: float = DRIVER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitGpus:
    """Wait until GPUs, by index and UUID, are back at their idle memory in two successive reads."""

    gpus: tuple[tuple[int, str], ...]
    limit_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitPorts:
    """Wait until a server could bind every one of some ports, each with its address."""

    binds: tuple[tuple[str, int], ...]
    limit_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSegment:
    """Remove a file of a dead engine's from /dev/shm."""

    segment: Segment
    reason: str


FreeStep = EndTree | AwaitGpus | AwaitPorts | RemoveSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Who was found on what must be free. `holds`: all that the driver and the device nodes say, believed or not;
    `space`: /dev/shm, None when it was not looked at."""

    blame: Blame = field(default_factory=Blame)
    gpus: GpuView = field(default_factory=GpuView)
    holds: tuple[GpuHold, ...] = ()
    segments: tuple[Segment, ...] = ()
    space: Space | None = None

    @property
    def ended(self) -> frozenset[Identity]:
        """Whom the steps end."""
        return self.blame.ended

    def busy(self, uuids: Iterable[str]) -> tuple[Gpu, ...]:
        """Those of some GPUs that are not idle."""
        wanted = frozenset(uuids)
        return tuple(gpu for gpu in self.gpus.gpus if gpu.uuid in wanted and gpus.busy(gpu))


def driver_s(instances: Iterable[Instance]) -> float:
    """Seconds in which the driver has to let go of what was on the GPUs of instances: the longest of their limits."""
    return max((float(instance.limits.driver_s) for instance in instances), default=DRIVER_S)


def ends(found: Found, *, term_s: float = TERM_S, kill_s: float = DRIVER_S) -> tuple[EndTree, ...]:
    """End every stray, one step a tree."""
    return tuple(
        EndTree(
            tree=tree, term_s=min(term_s, HEADLESS_S) if tree.headless else term_s, reason=_why(tree), kill_s=kill_s
        )
        for tree in found.blame.trees
    )


def segments(found: Found) -> tuple[RemoveSegment, ...]:
    """Remove every leftover of /dev/shm."""
    return tuple(RemoveSegment(segment=s, reason=why_left(s)) for s in found.segments)


def why_left(segment: Segment) -> str:
    """Why a leftover is removed: `25.0 MiB; the process that made it is dead, and nobody uses it`."""
    return f"{bytes_text(segment.size_bytes)}; the process that made it is dead, and nobody uses it"


def awaits(instances: Iterable[Instance], found: Found, *, limit_s: float = DRIVER_S) -> tuple[AwaitGpus, ...]:
    """Wait for the GPUs of instances that are about to start and whose memory is in use now."""
    named = {uuid: index for i in instances for index, uuid in zip(i.gpus, i.gpu_uuids, strict=False)}
    waiting = tuple((gpu.index, gpu.uuid) for gpu in found.busy(named))
    if not waiting:
        return ()
    reason = "; ".join(dict.fromkeys(filter(None, (gpus.busy(gpu) for gpu in found.busy(named)))))
    return (AwaitGpus(gpus=waiting, limit_s=limit_s, reason=reason),)


def awaits_ports(instances: Iterable[Instance], ports: Mapping[int, PortView]) -> tuple[AwaitPorts, ...]:
    """Wait for the ports of instances that are about to start and that somebody has now."""
    taken = [(bind, ports[bind[1]]) for i in instances for bind in i.binds if bind[1] in ports]
    waiting = [(bind, seen) for bind, seen in taken if seen.blocked]
    if not waiting:
        return ()
    holders = dict.fromkeys(holder.unit for _, seen in waiting for holder in seen.holders if holder.unit)
    reason = f"{' and '.join(holders)} had them" if holders else waiting[0][1].blocked
    return (AwaitPorts(binds=tuple(bind for bind, _ in waiting), limit_s=PORTS_S, reason=reason),)


def refusals(found: Found) -> tuple[Problem, ...]:
    """Every holder of what is asked for that is not ours and may not be ended."""
    return tuple(refused(suspect) for suspect in found.blame.suspects if stands(suspect))


def on_gpus(found: Found) -> tuple[Problem, ...]:
    """Those of the refusals that are because of GPUs."""
    return tuple(refused(suspect) for suspect in found.blame.suspects if suspect.gpus and stands(suspect))


def signs_on(port: int, found: Found) -> str:
    """Why the holders of a port are not ended, to be put behind their names; '' when nobody was judged."""
    said = dict.fromkeys(sign for s in _standing_on(port, found) for sign in s.signs[:1])
    return f" ({'; '.join(said)})" if said else ""


def advice_on(port: PortView, found: Found) -> str:
    """What to type about the first holder of a port that is not ended, or to find who it is."""
    known = next((words.advice(suspect) for suspect in _standing_on(port.port, found)), "")
    return known or advice_about(port)


def advice_about(port: PortView) -> str:
    """What to type about a port that cannot be had, where nobody has been judged for it; '' where nobody has it."""
    finds = f"ss -tanpe 'sport = :{port.port}'   as root finds out who it is"
    return {Keeper.KNOWN: "end it", Keeper.UNKNOWN: finds}.get(port.kept_by, "")


def holders_on(port: PortView, found: Found) -> tuple[dict[str, object], ...]:
    """Who keeps a port, for --json: as they were judged, or else as the kernel tells."""
    judged = tuple(words.values(suspect) for suspect in _standing_on(port.port, found))
    seen = tuple(
        {**words.process_values(p), "place": cgroups.place(p.cgroup)} for h in port.holders for p in h.processes
    )
    return judged or seen


def _standing_on(port: int, found: Found) -> list[Suspect]:
    return [suspect for suspect in found.blame.suspects if port in suspect.ports and stands(suspect)]


def stands(suspect: Suspect) -> bool:
    """Whether a holder stays where it is, come what is planned."""
    return suspect.verdict not in (Verdict.OURS, Verdict.STRAY) and not suspect.evicted


def refused(suspect: Suspect) -> ForeignHolder:
    """The refusal because of one holder."""
    what = [f"port {port}" for port in sorted(suspect.ports)]
    what += ["GPUs" if len(suspect.gpus) > 1 else "a GPU"] if suspect.gpus else []
    taken = " and ".join(what) or "it"
    details = {"holders": (words.values(suspect),)}
    return ForeignHolder(f"cannot free {taken}: {words.suspect(suspect)}", hint=words.advice(suspect), details=details)


def unfit(instances: Iterable[Instance], view: GpuView) -> Iterator[Problem]:
    """What is wrong with the GPUs of instances that are about to start, memory aside."""
    for instance in instances:
        named = dict(zip(instance.gpus, instance.gpu_uuids, strict=False))
        if named and view != GpuView() and (why := gpus.missing(view, named)):
            yield GpuProblem(f"cannot start {instance.unit}: {why}", hint="nvidia-smi -L, then dsv4ctl deploy")


def cramped(instances: tuple[Instance, ...], found: Found) -> tuple[Problem, ...]:
    """Why /dev/shm has no room for instances that are about to start; what ours have there goes before."""
    why = shared.lacking(instances, found.space) if instances and found.space else ""
    units = ", ".join(instance.unit for instance in instances)
    return (Problem(f"cannot start {units}: {why}", hint=shared.ADVICE),) if why else ()


def blocking(port: PortView, ours: Iterable[str], ended: frozenset[Identity]) -> bool:
    """Whether a port stays taken once our own units are stopped and the strays have ended.

    What the kernel lets go of by itself does not count: the unit's gate waits for it.
    """
    units = frozenset(ours)
    left = [h for h in port.holders if h.unit not in units and not _goes(h.processes, ended)]
    return bool(port.blocked) and port.kept_by is not Keeper.KERNEL and (bool(left) or not port.holders)


def _goes(processes: Iterable[Process], ended: frozenset[Identity]) -> bool:
    there = [process.identity for process in processes]
    return bool(there) and all(identity in ended for identity in there)


def _why(tree: Tree) -> str:
    holds = ", ".join(tree.holds[:4]) or "it is left of an engine whose main process has ended"
    return f"{holds}; {tree.signs[0]}" if tree.signs else holds
