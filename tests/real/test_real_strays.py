"""A real SGLang (CPU) that somebody starts by hand and whose main process dies while its children import.

They set their parent-death signal after their imports only, so they survive: orphans of the first process, all of them
titled python, without a port and without a client. They are not left alone for longer than it takes: a scheduler that
then finds nobody to tell that it is ready sends SIGQUIT to its parent, and a systemd as the first process dies of it.
"""

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from dsv4ctl.rehearsal.private import Machine
from tests.contract import conftest as engines
from tests.system.strays import tell

PORT = 30011
# Two cores and all of SGLang to import.
IMPORT_S = 120


def test_what_a_sigkill_leaves_of_a_server_whose_children_begin_to_import_is_gone_after_a_teardown(
    machine: Machine, folder: Path
) -> None:
    """B14: in the first second of their lives they have mapped no library that would tell them."""
    ours = login_shell(machine)
    before = everything(machine)
    # In the shell's own process group, as a script's are.
    main = start(ours, folder)
    until(lambda: len(children(machine, main)) >= 3)

    tell(ours, f"kill -KILL {main}")
    end_and_see_nothing_left(machine, ours)
    assert everything(machine) == before


def test_what_a_sigterm_leaves_of_a_server_whose_children_are_amid_their_imports_is_gone_after_a_teardown(
    machine: Machine, folder: Path
) -> None:
    """B14: with all of torch mapped, and no client, no port and no parent."""
    ours = login_shell(machine)
    before = everything(machine)
    # In a process group of its own, as what is typed at a prompt.
    tell(ours, "set -m")
    main = start(ours, folder)
    until(lambda: sum(has_torch(machine, child) for child in children(machine, main)) == 2)

    tell(ours, f"kill -TERM {main}")
    end_and_see_nothing_left(machine, ours)
    assert everything(machine) == before


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
    return [int(word) for word in machine.run(("sh", "-c", script), timeout_s=20).stdout.split()]


def left(machine: Machine, ours: subprocess.Popen[str]) -> dict[int, str]:
    """Pid -> comm of what was started in a shell's session and still runs."""
    shell = tell(ours, "echo $$").strip()
    lines = machine.run(("ps", "-eo", "pid=,sid=,stat=,comm="), timeout_s=20).stdout.splitlines()
    rows = [line.split(None, 3) for line in lines]
    return {
        int(pid): comm for pid, session, state, comm in rows if session == shell != pid and not state.startswith("Z")
    }


def everything(machine: Machine) -> tuple[set[int], str, list[str]]:
    """What there is, seen from outside: every process of the machine, its listeners, its shared memory."""
    # systemd starts the bus when it is first asked for a scope.
    files = [file for file in machine.group.rglob("cgroup.procs") if file.parent.name != "dbus.service"]
    pids = {int(line) for file in files for line in file.read_text().split()}
    listeners = machine.run(("ss", "-ltnH"), timeout_s=20).stdout
    return pids, listeners, sorted(path.name for path in (machine.root / "dev/shm").iterdir())


def has_torch(machine: Machine, pid: int) -> bool:
    return "libtorch_cpu.so" in machine.run(("cat", f"/proc/{pid}/maps"), timeout_s=20, check=False).stdout


def end_and_see_nothing_left(machine: Machine, ours: subprocess.Popen[str]) -> None:
    """A teardown from the very shell, while what is left of the server still imports."""
    until(lambda: len(left(machine, ours)) == 3)
    assert set(left(machine, ours).values()) == {"python"}

    said = tell(ours, "dsv4ctl teardown --verify --strays 2>&1; echo status=$?")

    assert said.rstrip().endswith("status=0"), said
    assert "no engines of any kind left" in said
    assert left(machine, ours) == {}
    assert tell(ours, "echo alive").strip() == "alive"


def until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + IMPORT_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)
