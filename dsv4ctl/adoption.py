"""adopt: from engines that somebody started by hand to the config that would start the same, and into our slice."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dsv4ctl import catch, config, gpus, inquiry, installed, lifecycle, procs, store, systemd, turn
from dsv4ctl.blame import Tree, Verdict, words
from dsv4ctl.byhand import draft as drafting
from dsv4ctl.byhand.draft import Draft, Roles
from dsv4ctl.byhand.likeness import Likeness, likeness
from dsv4ctl.byhand.main import Main
from dsv4ctl.cgroups import adopted, unit_of
from dsv4ctl.free import Found
from dsv4ctl.host import Host
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import Identity, Instance
from dsv4ctl.names import SLICE, adopted_scope
from dsv4ctl.problems import CannotRun, LeftOver, Problem, WrongOption
from dsv4ctl.sighting import sight
from dsv4ctl.store import Claim
from dsv4ctl.telling import Tell, Waits
from dsv4ctl.turn import Turn

# Between a look and the call to systemd a process may end or fork.
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What was found, the config for it, and what that would change. `notes`: who is left alone, what is missing."""

    mains: tuple[Main, ...]
    draft: Draft
    likenesses: tuple[Likeness, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A tree that was moved: the scope that it is in now, and who is in it."""

    scope: str
    role: str
    port: int
    pids: tuple[int, ...]


def look(host: Host, numbers: Sequence[int], key_file: str) -> Adoption:
    """Find what was started by hand, all of it or what has one of some ports or pids; changes nothing.

    Raises Problem when there is nothing, or it does not go into one config.
    """
    seen = gpus.read()
    found = inquiry.look(Wanted(everything=True, units=inquiry.units_of(installed.services(host))), seen)
    mains = _chosen(tuple(_mains(found)), numbers)
    made = drafting.draft(mains, key_file)
    likenesses, why = _compared(host, made, drafting.arrange(mains))
    return Adoption(mains=mains, draft=made, likenesses=likenesses, notes=(*_left_alone(found), *why))


def _mains(found: Found) -> Iterator[Main]:
    """Every main process: of a stray tree, of a service that somebody installed, and of what was adopted before."""
    seen: set[int] = set()
    for tree in found.blame.trees:
        for member in tree.members:
            if member.pid not in seen and (main := sight(member.pid, found)):
                seen.add(member.pid)
                made = adopted(main.process.cgroup)
                yield replace(main, tree=tree, scope=made.unit if made else "")
    for suspect in found.blame.suspects:
        process = suspect.process
        if process is None or process.pid in seen or suspect.verdict is not Verdict.FOREIGN:
            continue
        if main := sight(process.pid, found):
            seen.add(process.pid)
            yield _of_a_service(main, suspect.signs[0])


def _of_a_service(main: Main, sign: str) -> Main:
    """One that a service runs. It can be moved out where nobody would start it again: `systemd-run --unit=NAME`."""
    if systemd.ends_for_good(unit_of(main.process.cgroup)):
        members = (main.process.identity, *procs.descendants(main.process.pid))
        return replace(main, tree=Tree(root=main.process, members=members, unit="", holds=(), signs=()))
    return replace(main, stays=f"{sign}; that has to be stopped and disabled before a deploy")


def _chosen(mains: tuple[Main, ...], numbers: Sequence[int]) -> tuple[Main, ...]:
    """Those that are asked for: by port or pid; all without any."""
    if not mains:
        if os.geteuid() != 0:
            raise Problem("cannot look at the processes of other users", hint="run it as root")
        why = "cannot find an engine that was started by hand: none runs here"
        raise (WrongOption if numbers else Problem)(why, hint="dsv4ctl status, or dsv4ctl who")
    known = {number for main in mains for number in (main.port, main.process.pid)}
    if missing := sorted(set(numbers) - known):
        there = ", ".join(f"a {main.role} on port {main.port} (pid {main.process.pid})" for main in mains)
        raise WrongOption(
            f"cannot find an engine at {', '.join(map(str, missing))}: there is {there}", hint="dsv4ctl who"
        )
    return tuple(m for m in mains if not numbers or not {m.port, m.process.pid}.isdisjoint(numbers))


def _left_alone(found: Found) -> Iterator[str]:
    """Engines that nobody may touch: in containers, in other namespaces, in a user's own service manager."""
    for suspect in found.blame.suspects:
        if suspect.verdict in (Verdict.PROTECTED, Verdict.UNKNOWN):
            yield f"left alone: {words.suspect(suspect)}"


def _compared(host: Host, made: Draft, roles: Roles) -> tuple[tuple[Likeness, ...], tuple[str, ...]]:
    """What would differ, or why that cannot be told."""
    try:
        release = lifecycle.render(host, config.load(made.text, {}, path="the config of what runs").spec)
    except Problem as problem:
        return (), (f"cannot tell what would differ: {problem}",)
    return tuple(likeness(main, instance) for main, instance in _matched(roles, release.instances)), release.notes


def _matched(roles: Roles, instances: Iterable[Instance]) -> Iterator[tuple[Main, Instance]]:
    mains = [*roles.engines, *([roles.router] if roles.router else [])]
    for instance in instances:
        main = next((main for main in mains if main.role is instance.role), None)
        if main is not None:
            mains.remove(main)
            yield main, instance


def write_key(host: Host, made: Draft) -> None:
    """Put the API key into its file, readable for root only. Raises Problem when there is a file already."""
    path = host.paths.under(made.key_file)
    if path.exists() or path.is_symlink():
        raise Problem(f"cannot write {path}: there is one already, and it is not overwritten")
    store.write_atomic(path, f"{made.api_key}\n", mode=0o600)


def move(host: Host, mains: Iterable[Main], tell: Tell, *, claim: Claim | None = None) -> tuple[Moved, ...]:
    """Move the trees of main processes into scopes below our slice, those that are in one already excepted.

    No process is signalled or started; whoever started them goes on without them.
    Raises Problem for a tree that may not be moved, or cannot be.
    """
    host.require_live()
    chosen = tuple(main for main in mains if not main.scope)
    if stays := [main for main in chosen if main.tree is None]:
        unit = unit_of(stays[0].process.cgroup)
        raise Problem(
            f"cannot move pid {stays[0].process.pid}: {stays[0].stays}",
            hint=f"systemctl disable --now {unit}, then dsv4ctl deploy; dsv4ctl adopt PORT...   moves others",
        )
    with turn.taken(host, claim or Claim(what="adopt"), tell) as taken:
        return tuple(_moved(tree, some, taken) for tree, some in _by_tree(chosen))


def _by_tree(mains: Iterable[Main]) -> list[tuple[Tree, list[Main]]]:
    found: list[tuple[Tree, list[Main]]] = []
    for main in mains:
        known = next((some for tree, some in found if tree == main.tree), None)
        if known is not None:
            known.append(main)
        elif main.tree is not None:
            found.append((main.tree, [main]))
    return found


def _moved(tree: Tree, mains: Sequence[Main], taken: Turn) -> Moved:
    role, port = str(mains[0].role) if len(mains) == 1 else "several", mains[0].port
    scope = adopted_scope(role, port)
    taken.tell(Waits(f"moving pid {tree.root.pid} and its tree into {scope}"))
    for _ in range(TRIES):
        description = f"{role} on port {port}, started by hand and adopted by dsv4ctl"
        if _is_caught(scope, _alive(tree), description):
            break
    else:
        raise Problem(
            f"cannot move pid {tree.root.pid} into {scope}: systemd did not", hint=f"systemctl status {scope}"
        )
    for _ in range(TRIES):
        cgroup = systemd.show((scope,))[scope].cgroup
        inside = procs.cgroup_pids(cgroup)
        if not (outside := [i for i in _alive(tree) if i.pid not in inside]):
            taken.adopted.append(scope)
            return Moved(scope=scope, role=role, port=port, pids=inside)
        for identity in outside:
            procs.move(identity, cgroup)
    raise LeftOver(
        f"cannot move pid {outside[0].pid} into {scope}: it forks faster than it can be moved", hint="try again"
    )


def _is_caught(scope: str, members: tuple[Identity, ...], description: str) -> bool:
    """Have systemd move processes into a new scope; whether it holds them and no stranger."""
    asked = [identity.pid for identity in members]
    try:
        systemd.adopt(scope, asked, description=description, slice_=SLICE)
        inside = procs.cgroup_pids(systemd.show((scope,))[scope].cgroup)
    except CannotRun:
        return False
    return bool(inside) and catch.let_out(inside, asked, members)


def _alive(tree: Tree) -> tuple[Identity, ...]:
    """Who of a tree lives now, and whatever descends from its root."""
    below = procs.descendants(tree.root.pid) if procs.alive(tree.root.identity) else ()
    return tuple(sorted(i for i in {*tree.members, *below} if procs.alive(i)))
