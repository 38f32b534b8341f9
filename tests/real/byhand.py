"""What the tests of a real server that somebody starts by hand share: to start it as people do, and to look at it."""

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from dsv4ctl.rehearsal.private import Machine
from tests.contract import conftest as engines
from tests.system.strays import tell

PORT = 30011
# All of SGLang to import, on two cores that others work on as well.
IMPORT_S = 600


def login_shell(machine: Machine) -> subprocess.Popen[str]:
    """A shell that leads a session, as one over ssh does."""
    shell = machine.popen(("setsid", "bash"))
    tell(shell, "true")
    return shell


def start(ours: subprocess.Popen[str], folder: Path) -> int:
    """Start a server in the background, as people do; its pid."""
    build = engines.real(folder)
    settings = [f"{name}={shlex.quote(value)}" for name, value in build.environment]
    words = [str(build.python), "-m", "sglang.launch_server", "--model-path", str(build.model), "--port", str(PORT)]
    return int(tell(ours, f"{' '.join(settings)} {shlex.join([*words, *build.flags])} >/tmp/{PORT}.log 2>&1 & echo $!"))


def children(machine: Machine, pid: int) -> list[int]:
    # Processes start their children from any of their threads, and a thread may end while it is looked at.
    script = f"cat /proc/{pid}/task/*/children 2>/dev/null || true"
    return [int(word) for word in machine.run(("sh", "-c", script), timeout_s=120).stdout.split()]


def everything(machine: Machine) -> tuple[set[int], str, list[str]]:
    """What there is, seen from outside: every process of the machine, its listeners, its shared memory."""
    # systemd starts the bus when it is first asked for a scope.
    files = [file for file in machine.group.rglob("cgroup.procs") if file.parent.name != "dbus.service"]
    pids = {int(line) for file in files for line in file.read_text().split()}
    listeners = machine.run(("ss", "-ltnH"), timeout_s=120).stdout
    return pids, listeners, sorted(path.name for path in (machine.root / "dev/shm").iterdir())


def until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + IMPORT_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)
