"""Runs inside the machine: grows random process forests on the real kernel, tears them down, and counts the dead.

    python forests.py FIRST COUNT

Prints one JSON object: forests, ended, and for each mistake its seed. A process of a forest is an engine when it has a
library of the engine's environment mapped; its children inherit that, as they do in life.
"""

import json
import mmap
import os
import random
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import ending, free, inquiry, pidfd, procs
from dsv4ctl.clock import RealClock
from dsv4ctl.inquiry import Wanted
from dsv4ctl.model import Identity
from dsv4ctl.rehearsal import gpus

PORT, OTHER_PORT, GPU, OTHER_GPU = 31001, 31002, 0, 5
(LIBRARY,) = Path("/opt/sglang/lib").glob("python*/site-packages/sglang/standin/__init__.py")
NAMES = ("python3", "sglang::schedul", "nginx", "kv-offload/0", "bash", "(sd) x) S 1")


@dataclass(slots=True, kw_only=True)
class Node:
    """One process to be: whose child, what it does, and whether it ends once its children are there."""

    parent: int
    engine: bool
    leads: str
    name: str
    port: int = 0
    gpu: int = -1
    deaf: bool = False
    leaves: bool = False


def grown(seed: int) -> list[Node]:
    """A forest of that seed; node 0 is an innocent that everything descends from, as a login shell is."""
    draw = random.Random(seed)  # noqa: S311 -- no secret
    nodes = [Node(parent=-1, engine=False, leads="session", name="bash")]
    for number in range(1, draw.randint(4, 10)):
        parent = draw.randrange(number)
        nodes.append(
            Node(
                parent=parent,
                engine=nodes[parent].engine or draw.random() < 0.4,
                leads=draw.choice(["", "", "group", "session"]),
                name=draw.choice(NAMES),
                deaf=draw.random() < 0.3,
                leaves=draw.random() < 0.2,
            )
        )
    for number, node in enumerate(nodes[1:], start=1):
        _equip(draw, node, is_leaf=all(other.parent != number for other in nodes))
    return nodes


def _equip(draw: random.Random, node: Node, *, is_leaf: bool) -> None:
    """What it holds. An innocent holds no GPU that is asked for, and a port only where no engine is below it."""
    if node.engine:
        node.port = draw.choice([0, 0, PORT, OTHER_PORT])
        node.gpu = draw.choice([-1, -1, GPU, GPU, OTHER_GPU])
    else:
        node.port = draw.choice([0, OTHER_PORT, PORT if is_leaf else 0])
        node.gpu = draw.choice([-1, OTHER_GPU])
    node.leaves = node.leaves and not node.port and node.gpu < 0


def plant(nodes: list[Node]) -> dict[int, int]:
    """Start a forest; node -> pid of those that live on."""
    reader, writer = os.pipe()
    # No child of ours: those are spared, as are our ancestors.
    if not os.fork():
        os.close(reader)
        if os.fork():
            os._exit(0)
        _be(nodes, 0, writer)
    os.close(writer)
    text = b""
    while len(text.splitlines()) < len(nodes) or not text.endswith(b"\n"):
        text += os.read(reader, 65536)
    os.close(reader)
    found = {int(node): int(pid) for node, pid in (line.split() for line in text.splitlines())}
    end = time.monotonic() + 5
    while any(procs.identity(found[n]) and _runs(found[n]) for n, node in enumerate(nodes) if node.leaves):
        assert time.monotonic() < end
        time.sleep(0.005)
    return {n: pid for n, pid in found.items() if not nodes[n].leaves}


def _runs(pid: int) -> bool:
    found = procs.stat(pid)
    return found is not None and not found.ended


def _be(nodes: list[Node], number: int, writer: int) -> None:
    """Be one process of a forest for the rest of its life."""
    node = nodes[number]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if node.leads == "session":
        os.setsid()
    elif node.leads == "group":
        os.setpgid(0, 0)
    if node.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("/proc/self/comm").write_text(node.name)
    held: list[object] = []
    if node.engine:
        with LIBRARY.open("rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    for child, other in enumerate(nodes):
        if other.parent == number and not os.fork():
            _be(nodes, child, writer)
    held += _hold(node)
    os.write(writer, f"{number} {os.getpid()}\n".encode())
    os.close(writer)
    if node.leaves:
        os._exit(0)
    while held is not None:
        time.sleep(60)


def _hold(node: Node) -> list[object]:
    held: list[object] = []
    if node.port:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", node.port))
        server.listen()
        held.append(server)
    if node.gpu >= 0:
        held.append(Path(f"/dev/nvidia{node.gpu}").open("rb"))  # noqa: SIM115 -- held until the end
        (gpus.LEDGER / gpus.uuid(node.gpu) / str(os.getpid())).write_text(f"{2**30}\n")
    return held


def guilty(nodes: list[Node]) -> set[int]:
    """The nodes that must go: engines that hold what is asked for, and whatever descends from them."""
    found = {n for n, node in enumerate(nodes) if node.engine and (node.port == PORT or node.gpu == GPU)}
    for number, node in enumerate(nodes):
        # One whose parent has left hangs at the first process: no child of anybody's any more.
        if node.parent in found and not nodes[node.parent].leaves:
            found.add(number)
    return {n for n in found if not nodes[n].leaves}


def innocent(nodes: list[Node]) -> set[int]:
    """The nodes that must live, come what may: those that are no engine."""
    return {n for n, node in enumerate(nodes) if not node.engine and not node.leaves}


def one(seed: int) -> tuple[set[int], set[int], int]:
    """One forest: innocents that died, guilty ones that live, and how many were ended."""
    nodes = grown(seed)
    alive = plant(nodes)
    names = {n: identity for n, pid in alive.items() if (identity := procs.identity(pid))}
    try:
        wanted = Wanted(ports=frozenset({PORT}), gpus=frozenset({gpus.uuid(GPU)}))
        found = inquiry.look(wanted)
        ending.end(free.ends(found, term_s=0.05), RealClock(), lambda _: None)
        dead = {n for n, identity in names.items() if not procs.alive(identity)}
        return innocent(nodes) & dead, guilty(nodes) - dead, len(dead)
    finally:
        _clear(list(names.values()))


def _clear(left: list[Identity]) -> None:
    for identity in left:
        pidfd.signal(identity, signal.SIGKILL)
    end = time.monotonic() + 5
    while any(map(procs.alive, left)) and time.monotonic() < end:
        time.sleep(0.005)


def main() -> None:
    """Grow and tear down so many forests."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    died, lived, ended = [], [], 0
    for seed in range(first, first + count):
        innocents, survivors, dead = one(seed)
        died += [(seed, sorted(innocents))] if innocents else []
        lived += [(seed, sorted(survivors))] if survivors else []
        ended += dead
    sys.stdout.write(json.dumps({"forests": count, "ended": ended, "died": died, "lived": lived}) + "\n")


if __name__ == "__main__":
    main()
