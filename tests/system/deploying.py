"""What the system tests of a deployed engine share: to deploy it, to look at it from outside, to stand in its way."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dsv4ctl
from dsv4ctl.child import Done
from dsv4ctl.rehearsal.private import Machine

PORT = 30001
RENDEZVOUS = 20001
UNIT = "dsv4-server.service"
# A stand-in that is there at once: no imports, a stop that is noticed at once, and a warm-up that comes just after the
# bind: one that comes before it is tried again a second later.
QUICK: dict[str, object] = {"load_s": 0.3, "import_s": 0.0, "warmup_s": 0.05, "drain_poll_s": 0.1}

# The supervisor, the main process, the resource tracker, four schedulers and the detokenizer.
WHOLE_TREE = 8

LISTENER = """
import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if family == socket.AF_INET6:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(sys.argv[3]))
s.bind((sys.argv[1], int(sys.argv[2])))
if len(sys.argv) < 5:
    s.listen()
print("up", flush=True)
time.sleep(600)
"""


def deploy(machine: Machine, *words: str, check: bool = True, timeout_s: float = 60) -> Done:
    argv = ("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT), *words)
    return machine.run(argv, timeout_s=timeout_s, check=check)


# Config and words -> what `dsv4ctl render` makes of them; it takes a second, and the same gives the same.
_rendered: dict[tuple[str, ...], dict[str, str]] = {}


def install(machine: Machine, *words: str) -> None:
    """Put the unit on the machine and start nothing: what starts it next is systemd's own business."""
    asked = ((machine.root / "etc/dsv4ctl/config.toml").read_text(), *words)
    if asked not in _rendered:
        argv = ("dsv4ctl", "render", "--port", str(PORT), "--out", "/", *words)
        written = machine.run(argv, timeout_s=60).stdout.splitlines()
        _rendered[asked] = {path: (machine.root / path[1:]).read_text() for path in written}
    for path, text in _rendered[asked].items():
        machine.write(path, text)
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)


def configure(machine: Machine, text: str) -> None:
    """Add to the machine's config file."""
    file = machine.root / "etc/dsv4ctl/config.toml"
    machine.write("/etc/dsv4ctl/config.toml", f"{file.read_text()}\n{text}\n")


def systemctl(machine: Machine, *words: str, check: bool = True, timeout_s: float = 60) -> Done:
    return machine.run(("systemctl", *words, UNIT), timeout_s=timeout_s, check=check)


def show(machine: Machine, *properties: str) -> list[str]:
    argv = ("systemctl", "show", UNIT, "--value", *(w for p in properties for w in ("-p", p)))
    return machine.run(argv, timeout_s=10).stdout.splitlines()


def prop(machine: Machine, name: str, unit: str = UNIT) -> str:
    """One property of the unit; '' when it is not set."""
    return machine.run(("systemctl", "show", unit, f"--property={name}", "--value"), timeout_s=10).stdout.strip()


def journal(machine: Machine, *matches: str) -> str:
    """What the journal has got since the test began, systemd's own lines included, or what matches."""
    machine.run(("journalctl", "--sync"), timeout_s=30)
    since = f"--after-cursor={(machine.root / 'run/journal-before').read_text().strip()}"
    return machine.run(("journalctl", "--output=cat", "--no-pager", "--all", since, *matches), timeout_s=60).stdout


def processes_of_ours(machine: Machine) -> int:
    """How many processes run in units of ours: read from outside, recursively, not from what the product says."""
    files = [f for f in machine.group.rglob("cgroup.procs") if "/dsv4.slice/" in str(f)]
    return sum(len(f.read_text().split()) for f in files)


def wait_for_whole_tree(machine: Machine) -> None:
    """Wait until a TP4 server runs and nothing besides: a look of the supervisor's is a process for a moment."""
    until(lambda: processes_of_ours(machine) == WHOLE_TREE, lambda: f"{processes_of_ours(machine)}, not {WHOLE_TREE}")


def until(found: Callable[[], bool], why: Callable[[], str], *, limit_s: float = 40, every_s: float = 0.1) -> None:
    end = time.monotonic() + limit_s
    while not found():
        assert time.monotonic() < end, why()
        time.sleep(every_s)


def last_lines(machine: Machine, unit: str = UNIT) -> str:
    shown = machine.run(("journalctl", "-u", unit, "-n", "30", "--output=cat"), timeout_s=10).stdout
    return "\n".join(line[:200] for line in shown.splitlines())


def wait_for_state(machine: Machine, state: str, *, limit_s: float = 40, unit: str = UNIT) -> None:
    until(lambda: prop(machine, "ActiveState", unit) == state, lambda: last_lines(machine, unit), limit_s=limit_s)


def wait_for_active(machine: Machine, *, limit_s: float = 40, unit: str = UNIT) -> None:
    wait_for_state(machine, "active", limit_s=limit_s, unit=unit)


def wait_for_words(machine: Machine, words: str, *, limit_s: float = 40, unit: str = UNIT) -> None:
    """Wait until `systemctl status` says so."""
    until(lambda: words in prop(machine, "StatusText", unit), lambda: last_lines(machine, unit), limit_s=limit_s)


def wait_for_journal(machine: Machine, words: str, *, limit_s: float = 40, unit: str = UNIT) -> None:
    """Wait until a line of the unit says so."""
    until(lambda: words in journal(machine, "-u", unit), lambda: last_lines(machine, unit), limit_s=limit_s)


def inside(machine: Machine, unit: str = UNIT) -> dict[str, int]:
    """The pids of the supervisor, of the engine's main process and of one scheduler, in the machine's own numbers."""
    main = int(prop(machine, "MainPID", unit))
    engine = children(machine, main)[0]
    comm = {pid: (machine.root / f"proc/{pid}/comm").read_text() for pid in children(machine, engine)}
    scheduler = next(pid for pid, name in comm.items() if name.startswith("sglang::schedul"))
    return {"supervisor": main, "engine": engine, "scheduler": scheduler}


def children(machine: Machine, pid: int) -> list[int]:
    """The children of every thread of a process; threads may end while they are listed."""
    script = f"cat /proc/{pid}/task/*/children 2>/dev/null || true"
    return [int(word) for word in machine.run(("sh", "-c", script), timeout_s=5).stdout.split()]


def locked_by(machine: Machine) -> int:
    """The pid, in the machine's own numbers, of the command that holds the lock."""
    return int(json.loads((machine.root / "run/dsv4ctl/lock").read_text())["process"]["pid"])


def listen(
    machine: Machine, address: str, port: int, *, v6only: bool = False, bound_only: bool = False
) -> subprocess.Popen[str]:
    """A stranger that has a port of the machine; the session's end ends it."""
    flags = (str(int(v6only)), *(["bound"] if bound_only else []))
    holder = machine.popen(("python3", "-c", LISTENER, address, str(port), *flags))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n", holder.communicate()
    return holder


def make_user(machine: Machine, user: str | None) -> None:
    """Make a user of the machine who can reach our interpreter; skip where that lies on a folder of the host's."""
    if user is None:
        return
    ours = (Path(sys.executable), Path(sys.base_prefix), Path(dsv4ctl.__file__))
    closed = sorted({str(above) for path in ours for above in path.parents})
    script = 'id "$0" >/dev/null 2>&1 || useradd "$0"; for folder; do chmod o+x "$folder"; done'
    machine.run(("sh", "-c", script, user, *closed), timeout_s=10, check=False)
    if machine.run(("runuser", "-u", user, "--", sys.executable, "-c", ""), timeout_s=10, check=False).status:
        pytest.skip(f"{sys.executable} lies where no other user can execute it")
