"""The proof that nothing is left: units, processes by any sign, ports, GPU memory, /dev/shm; and what is waited for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dsv4ctl import ending, free, settle, shm, sockets, systemd, topology, trees
from dsv4ctl.blame import Suspect, Verdict, words
from dsv4ctl.due import DOWN
from dsv4ctl.findings import Check
from dsv4ctl.free import AwaitGpus, Found
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import GpuView, Instance, Keeper, PortView, Unit
from dsv4ctl.model.release import ANYWHERE
from dsv4ctl.problems import Status
from dsv4ctl.telling import Tell, Waits
from dsv4ctl.trees import UnitTree

PORT_EVERY_S = 0.2
# Who holds a port and cannot be told may have ended between two looks.
UNKNOWN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What must be gone: the units of instances, known trees, and what was wanted free. `limit_s`: patience in all."""

    instances: tuple[Instance, ...]
    trees: tuple[UnitTree, ...]
    wanted: Wanted
    limit_s: float


def checks(host: Host, look: Look, found: Found, tell: Tell) -> tuple[Check, ...]:
    """Check everything, one line each; where nobody holds what is not free yet, the kernel and the driver have time."""
    names = {i.unit for i in look.instances} | look.wanted.units
    units = systemd.show(tuple(sorted(names))) if names else {}
    return (
        *(_unit(u) for _, u in sorted(units.items())),
        *(_tree(t) for t in look.trees),
        *_strays(look.wanted, found),
        *_ports(host, look, tell),
        *_gpus(host, look, found, tell),
        *_segments(look.wanted),
    )


def around(host: Host, look: Look, found: Found, tell: Tell) -> tuple[Check, ...]:
    """Check a host on which nothing of ours is known: every engine, and the memory of every GPU.

    What others than engines hold is named, and fails nothing. `look` wants all GPUs.
    """
    suspects = found.blame.suspects
    others = tuple(suspect for suspect in suspects if free.stands(suspect))
    engines = tuple(suspect for suspect in suspects if not free.stands(suspect))
    not_ours = {uuid for s in others for uuid in s.gpus} - {uuid for s in engines for uuid in s.gpus}
    # An engine that was not ended keeps what it holds.
    limit_s = 0.0 if engines else look.limit_s
    theirs = replace(look, wanted=replace(look.wanted, gpus=look.wanted.gpus - not_ours), limit_s=limit_s)
    blamed = replace(found, blame=replace(found.blame, suspects=engines))
    return (
        *checks(host, theirs, blamed, tell),
        *(_not_ours("holder", words.suspect(suspect)) for suspect in others),
        *(
            _not_ours(f"memory of GPU {gpu.index}", words.gpu(gpu, found.holds))
            for gpu in found.gpus.gpus
            if gpu.uuid in not_ours
        ),
        *_unreadable(found.gpus),
    )


def _unreadable(view: GpuView) -> Iterable[Check]:
    """GPUs whose memory nobody tells; where there is none at all there is no memory to prove."""
    what = "memory of GPUs"
    if view.problem and not topology.has_gpu():
        yield Check(what=what, ok=True, words="none: no NVIDIA device on the PCI bus, in /dev or of a driver")
        return
    for why in (*filter(None, (view.problem,)), *view.unreadable):
        yield Check(what=what, ok=False, words=f"not known: {why}", status=Status.GPU, hint="nvidia-smi -L")


def _not_ours(what: str, said: str) -> Check:
    return Check(what=what, ok=True, words=f"not ours: {said}", stays=True)


def _unit(unit: Unit) -> Check:
    return Check(what=f"unit {unit.name}", ok=unit.active in DOWN, words=f"{unit.active} ({unit.sub})")


def _tree(tree: UnitTree) -> Check:
    left, count = trees.left(tree), len(tree.processes)
    shown = "; ".join(map(ending.survivor, left))
    return Check(
        what=f"processes of {tree.unit}",
        ok=not left,
        words=f"still there: {shown}" if left else f"all {count} gone, cgroup empty",
    )


def _strays(wanted: Wanted, found: Found) -> tuple[Check, ...]:
    """Holders by any sign. Who may not be ended is a check of its own, for the operator decides about it."""
    again = "dsv4ctl teardown --strays --verify" if wanted.everything else "dsv4ctl teardown --verify"
    left = tuple(_holder(s, again) for s in found.blame.suspects if s.process is not None or s.ports)
    if left or not (wanted.ports or wanted.gpus or wanted.everything):
        return left
    whose = "engines of any kind" if wanted.everything else "holders of its ports and GPUs"
    return (Check(what="strays", ok=True, words=f"no {whose} left"),)


def _holder(suspect: Suspect, again: str) -> Check:
    stays = free.stands(suspect)
    return Check(
        what="foreign holder" if stays else "stray",
        ok=False,
        words=words.suspect(suspect),
        status=Status.FOREIGN if stays else Status.LEFT_OVER,
        hint=words.advice(suspect) if stays else again,
    )


def _ports(host: Host, look: Look, tell: Tell) -> Iterable[Check]:
    # As a deploy looks at them; a port that nobody told the address of is looked at on all.
    addresses = {port: address for i in look.instances for address, port in i.binds}
    began = host.clock.now()
    for port in sorted(look.wanted.ports):
        address = addresses.get(port, ANYWHERE)
        seen = sockets.view(address, port)
        while seen.blocked and host.clock.now() < began + _patience_s(seen, look.limit_s):
            tell(Waits(f"waiting for port {port}: {seen.blocked}"))
            host.clock.sleep(PORT_EVERY_S)
            seen = sockets.view(address, port)
        yield _port(seen)


def _patience_s(port: PortView, limit_s: float) -> float:
    """How long a port is waited for: what nobody holds passes by itself, who holds one does not go for that."""
    return {Keeper.KERNEL: limit_s, Keeper.UNKNOWN: min(UNKNOWN_S, limit_s)}.get(port.kept_by, 0.0)


def _port(port: PortView) -> Check:
    return Check(
        what=f"port {port.port}",
        ok=not port.blocked,
        words=port.blocked or "free on both families",
        status=Status.PORT_TAKEN,
        hint=f"dsv4ctl who {port.port}",
    )


def _gpus(host: Host, look: Look, found: Found, tell: Tell) -> Iterable[Check]:
    """Each GPU at its idle memory. Nobody is waited for who will not go by himself."""
    kept = {uuid for s in found.blame.suspects if s.verdict is not Verdict.STRAY for uuid in s.gpus}
    named = [(gpu.index, gpu.uuid) for gpu in found.gpus.gpus if gpu.uuid in look.wanted.gpus]
    unseen = look.wanted.gpus - {uuid for _, uuid in named}
    if unseen:
        why = found.gpus.problem or "not listed by the driver any more"
        yield Check(what=f"memory of {len(unseen)} GPUs", ok=False, words=f"not known: {why}", status=Status.GPU)
    for limit_s, is_kept in ((look.limit_s, False), (0.0, True)):
        some = tuple((index, uuid) for index, uuid in named if (uuid in kept) is is_kept)
        if some:
            step = AwaitGpus(gpus=some, limit_s=limit_s, reason="")
            busy, waited = settle.wait(step, host.clock, lambda text: tell(Waits(text)))
            yield from (_memory(index, busy.get(index, ""), waited) for index, _ in some)


def _memory(index: int, why: str, waited_s: float) -> Check:
    after = f" after {waited_s:.0f} s" if waited_s >= 1 else ""
    said = f"{why or 'at its idle baseline'}{after}"
    return Check(
        what=f"memory of GPU {index}", ok=not why, words=said, status=Status.GPU, hint=f"dsv4ctl who gpu:{index}"
    )


def _segments(wanted: Wanted) -> tuple[Check, ...]:
    if not wanted.users:
        return ()
    left = shm.leftovers(wanted.users)
    shown = ", ".join(segment.path for segment in left)
    what = "shared memory"
    return (Check(what=what, ok=not left, words=f"left behind: {shown}" if left else "nothing left by the dead"),)
