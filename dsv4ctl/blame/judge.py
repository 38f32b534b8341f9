"""Scene x Request -> who holds what, and the closed set of processes that may be ended for it. Unknown is foreign."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dsv4ctl import cgroups
from dsv4ctl.blame import grow
from dsv4ctl.blame.grow import Limits, Links
from dsv4ctl.blame.guard import guarded
from dsv4ctl.blame.scene import Blame, GpuHold, Request, Scene, Suspect, Tree, Verdict
from dsv4ctl.blame.words import LISTENS
from dsv4ctl.model import Holder, Process
from dsv4ctl.quantity import bytes_text


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds: ports it listens on and GPUs that it has memory on, and all of it in words."""

    ports: frozenset[int] = frozenset()
    gpus: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def plus(self, other: "Held") -> "Held":
        """Both together."""
        words = tuple(dict.fromkeys((*self.words, *other.words)))
        return Held(self.ports | other.ports, self.gpus | other.gpus, words)


def blame(scene: Scene, request: Request) -> Blame:
    """Judge every holder of what is asked for.

    1. guarded: PROTECTED, never ended, not even by name
    2. in a unit of ours: OURS, stopped with its unit
    3. in a scope into which we adopted it: STRAY, for it was started by hand
    4. an engine by a sign besides what it holds, and in no service: STRAY, ended with its tree
    5. on its way out, and no sign left of what it was: STRAY, waited for, and nobody is signalled
    6. its namespaces or its name cannot be read: UNKNOWN
    7. anything else: FOREIGN, ended only when it is named
    """
    links = Links.of(scene, guarded(scene))
    held = holdings(scene)
    suspects = [
        *_unidentified(scene, request),
        *(_suspect(links, request, held, scene.processes[pid]) for pid in _asked_for(links, request, held)),
    ]
    trees = tuple(_trees(links, request, held, suspects))
    return Blame(suspects=tuple(_with_tree(suspect, trees) for suspect in suspects), trees=trees)


def holdings(scene: Scene) -> dict[int, Held]:
    """What every process of the scene holds, as far as it was looked at; by pid."""
    found: dict[int, Held] = {}
    for pid, one in (*_ports(scene), *_gpus(scene)):
        found[pid] = found.get(pid, Held()).plus(one)
    return found


def _ports(scene: Scene) -> Iterator[tuple[int, Held]]:
    for holder in scene.listeners:
        for process in holder.processes:
            if _same(scene, process):
                words = f"{LISTENS}{_address(holder)}"
                yield process.pid, Held(frozenset({holder.listener.port}), frozenset(), (words,))


def _gpus(scene: Scene) -> Iterator[tuple[int, Held]]:
    for hold in scene.holds:
        if hold.believed and hold.process is not None and _same(scene, hold.process):
            yield hold.pid, Held(frozenset(), frozenset({hold.uuid}), (gpu_words(hold),))


def _same(scene: Scene, process: Process) -> bool:
    """Whether the holder is still the process that was seen: a pid alone names nobody."""
    known = scene.processes.get(process.pid)
    return known is not None and known.identity == process.identity


def gpu_words(hold: GpuHold) -> str:
    """`holds 71.2 GiB of GPU 0`."""
    much = "memory" if hold.used_bytes is None else bytes_text(hold.used_bytes)
    return f"holds {much} of GPU {hold.index}"


def _address(holder: Holder) -> str:
    listener = holder.listener
    address = f"[{listener.address}]" if ":" in listener.address else listener.address
    return f"{address}:{listener.port}"


def _wanted(request: Request, held: Held) -> Held:
    """The part of what is held that is asked for; its words are all words."""
    return Held(held.ports & request.ports, held.gpus & request.gpus, held.words)


def _asked_for(links: Links, request: Request, held: Mapping[int, Held]) -> list[int]:
    """The pids to judge: holders of what is asked for, whoever is named, and with `everything` every engine."""
    named = {i.pid for i in request.evict if _is(links.scene, i.pid, request)}
    asked = {pid for pid, one in held.items() if one.ports & request.ports or one.gpus & request.gpus}
    if request.adopted:
        asked |= {p.pid for p in links.scene.processes.values() if cgroups.adopted(p.cgroup)}
    if request.everything:
        asked |= {pid for pid in held if links.has_loaded(pid)}
        asked |= {p.pid for p in links.scene.processes.values() if _is_leftover(links, p)}
    return sorted(asked | named)


def _is(scene: Scene, pid: int, request: Request) -> bool:
    return pid in scene.processes and scene.processes[pid].identity in request.evict


def _is_leftover(links: Links, process: Process) -> bool:
    """An engine's process whose parent has ended, in a job that no engine leads: killed while its children import.

    The job's leader has ended as well, or it is the script that started the engine. One that leads a job of its own is
    a daemon of somebody's.
    """
    return links.is_engine(process.pid) and not links.is_engine(process.group) and grow.is_orphan(links, process)


def _suspect(links: Links, request: Request, held: Mapping[int, Held], process: Process) -> Suspect:
    one = held.get(process.pid, Held())
    verdict, signs = _judge(links, request, held, process)
    wanted = _wanted(request, one)
    return Suspect(
        verdict=verdict,
        process=process,
        holds=one.words,
        signs=signs,
        place=cgroups.place(process.cgroup),
        ports=wanted.ports,
        gpus=wanted.gpus,
        evicted=verdict in (Verdict.FOREIGN, Verdict.UNKNOWN) and process.identity in request.evict,
    )


def _judge(
    links: Links, request: Request, held: Mapping[int, Held], process: Process
) -> tuple[Verdict, tuple[str, ...]]:
    if why := links.guarded.get(process.pid):
        return Verdict.PROTECTED, (why,)
    unit = cgroups.unit_of(process.cgroup)
    if unit in links.scene.units:
        return Verdict.OURS, (f"it runs in {unit}",)
    if adopted := cgroups.adopted(process.cgroup):
        return Verdict.STRAY, (f"it was adopted into {adopted.unit}",)
    if cgroups.user_manager_of(process.cgroup) is not None and links.is_managed(process):
        return Verdict.PROTECTED, (f"it runs in {unit} of a user's own service manager, which would start it again",)
    signs = _signs(links, request, held, process)
    if links.is_managed(process):
        return Verdict.FOREIGN, (f"it runs in {unit}, which somebody installed", *signs)
    if _is_leaving(links, process) and not signs:
        return Verdict.STRAY, ("it is on its way out, and the kernel has yet to let go of what it held",)
    if not process.pid_namespace or not process.net_namespace:
        return Verdict.UNKNOWN, ("its namespaces cannot be read",)
    return (Verdict.STRAY, signs) if signs else (Verdict.FOREIGN, (_no_sign(links, process),))


def _no_sign(links: Links, process: Process) -> str:
    if environment := links.scene.environments.get(process.pid):
        return f"it runs the interpreter of the engine environment {environment}, and has loaded nothing of it"
    return "no sign says that it is an engine"


def _is_leaving(links: Links, process: Process) -> bool:
    return process.pid in links.scene.leaving and not links.is_engine(process.pid) and bool(process.pid_namespace)


def _signs(links: Links, request: Request, held: Mapping[int, Held], process: Process) -> tuple[str, ...]:
    """Why a holder is an engine: its environment, its marker, or that its tree holds a port and a GPU of those asked.

    What it holds is no sign by itself: a web server listens as well, and a notebook has memory on a GPU.
    """
    found = []
    # An engine listens, and takes memory, when it has loaded its libraries. Who holds something with the interpreter
    # alone is a `python -m http.server` of that environment, say: the interpreter is a sign only of what holds nothing
    # yet, for --strays. A notebook there that has loaded any of its libraries cannot be told from an engine.
    environment = links.scene.environments.get(process.pid)
    if environment and (links.has_loaded(process.pid) or process.pid not in held):
        found.append(f"it runs in the engine environment {environment}")
    if process.pid in links.scene.marked:
        found.append("it carries our marker in its environment")
    if not found and (both := _port_and_gpu(links, request, held, process)):
        found.append(both)
    return tuple(found)


def _port_and_gpu(links: Links, request: Request, held: Mapping[int, Held], process: Process) -> str:
    below = grow.members_of(links, (process.pid,), Limits())
    parent = {process.parent_pid} - links.guarded.keys()
    near = [held[pid] for pid in below | parent if pid in held]
    ports = {port for one in near for port in one.ports & request.ports}
    gpus = {gpu for one in near for gpu in one.gpus & request.gpus}
    return "it and its children hold a port and a GPU of those asked for" if ports and gpus else ""


def _unidentified(scene: Scene, request: Request) -> Iterator[Suspect]:
    """Listeners that nobody can be named for: their unit is known from the kernel, their process is not."""
    for holder in scene.listeners:
        if any(_same(scene, p) for p in holder.processes) or holder.listener.port not in request.ports:
            continue
        unit = cgroups.unit_of(holder.listener.cgroup)
        ours = unit in scene.units
        yield Suspect(
            verdict=Verdict.OURS if ours else Verdict.UNKNOWN,
            process=None,
            holds=(f"{LISTENS}{_address(holder)}",),
            signs=(f"its socket was made in {unit}" if ours else "nobody can tell which process has the socket",),
            place=cgroups.place(holder.listener.cgroup),
            ports=frozenset({holder.listener.port}),
        )


def _trees(links: Links, request: Request, held: Mapping[int, Held], suspects: list[Suspect]) -> Iterator[Tree]:
    limits = _limits(links, request, held)
    taken: frozenset[int] = frozenset()
    for suspect in suspects:
        process = suspect.process
        if process is None or not (suspect.verdict is Verdict.STRAY or suspect.evicted) or process.pid in taken:
            continue
        if _is_leaving(links, process):
            taken |= {process.pid}
            yield _leaving(process, suspect)
            continue
        root = process if suspect.evicted else grow.root_of(links, process)
        members = grow.members_of(links, (root.pid, process.pid), limits) - taken
        taken |= members
        yield _tree(links, held, suspect, root=root, members=members)


def _leaving(process: Process, suspect: Suspect) -> Tree:
    """The last of a process, and nothing with it: whatever hangs together with it may be anybody's."""
    members = (process.identity,)
    return Tree(root=process, members=members, unit="", holds=suspect.holds, signs=suspect.signs, leaving=True)


def _tree(links: Links, held: Mapping[int, Held], suspect: Suspect, *, root: Process, members: frozenset[int]) -> Tree:
    unit = links.own_unit(root)
    words = [word for pid in sorted(members) if pid in held for word in held[pid].words]
    return Tree(
        root=root,
        members=tuple(sorted(links.scene.processes[pid].identity for pid in members)),
        unit=unit,
        holds=tuple(dict.fromkeys(words)),
        signs=("--evict names it",) if suspect.evicted else suspect.signs,
        headless=not suspect.evicted and _is_headless(links, root, held.get(root.pid, Held())),
        # 0 is a group whose leader lives outside our pid namespace.
        groups=tuple(sorted({links.scene.processes[pid].group for pid in members} - {0})),
    )


def _is_headless(links: Links, root: Process, one: Held) -> bool:
    """A worker whose main process has ended: an orphan without children that has memory on a GPU, or nothing at all.

    A main process has children, and the ports that clients use; ranks listen as well, for each other.
    """
    alone = grow.is_orphan(links, root) and not links.children.get(root.pid)
    return alone and (bool(one.gpus) or not one.ports)


def _with_tree(suspect: Suspect, trees: tuple[Tree, ...]) -> Suspect:
    """A holder without a sign of its own that belongs to the tree of a stray is one as well."""
    if suspect.verdict is not Verdict.FOREIGN or suspect.process is None or suspect.evicted:
        return suspect
    tree = next((tree for tree in trees if suspect.process.identity in tree.members), None)
    if tree is None:
        return suspect
    return replace(suspect, verdict=Verdict.STRAY, signs=(f"it belongs to the tree of pid {tree.root.pid}",))


def _limits(links: Links, request: Request, held: Mapping[int, Held]) -> Limits:
    processes = links.scene.processes
    ours = {p.pid for p in processes.values() if cgroups.unit_of(p.cgroup) in links.scene.units}
    heads = {p for p, one in held.items() if one.gpus & request.gpus and grow.is_orphan(links, processes[p])}
    busy = {p for p, one in held.items() if one.ports - request.ports or one.gpus - request.gpus}
    if request.everything:
        return Limits(spared=frozenset(ours), heads=frozenset(heads))
    above = {ancestor for pid in busy for ancestor in _ancestors(processes, pid)}
    return Limits(spared=frozenset(ours), heads=frozenset(heads), busy=frozenset(busy | above))


def _ancestors(processes: Mapping[int, Process], pid: int) -> set[int]:
    found: set[int] = set()
    while (pid := processes[pid].parent_pid if pid in processes else 0) and pid not in found:
        found.add(pid)
    return found
