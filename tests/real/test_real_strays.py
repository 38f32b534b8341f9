"""A real SGLang (CPU) that somebody starts by hand and whose main process dies while its children import.

They set their parent-death signal after their imports only, so they survive: orphans of the first process, all of them
titled python, without a port and without a client. They are not left alone for longer than it takes: a scheduler that
then finds nobody to tell that it is ready sends SIGQUIT to its parent, and a systemd as the first process dies of it.
"""

import subprocess
from pathlib import Path

from dsv4ctl.rehearsal.private import Machine
from tests.real.byhand import children, everything, login_shell, start, until
from tests.system.strays import tell


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


def left(machine: Machine, ours: subprocess.Popen[str]) -> dict[int, str]:
    """Pid -> comm of what was started in a shell's session and still runs."""
    shell = tell(ours, "echo $$").strip()
    lines = machine.run(("ps", "-eo", "pid=,sid=,stat=,comm="), timeout_s=120).stdout.splitlines()
    rows = [line.split(None, 3) for line in lines]
    return {
        int(pid): comm for pid, session, state, comm in rows if session == shell != pid and not state.startswith("Z")
    }


def has_torch(machine: Machine, pid: int) -> bool:
    return "libtorch_cpu.so" in machine.run(("cat", f"/proc/{pid}/maps"), timeout_s=120, check=False).stdout


def end_and_see_nothing_left(machine: Machine, ours: subprocess.Popen[str]) -> None:
    """A teardown from the very shell, while what is left of the server still imports."""
    until(lambda: len(left(machine, ours)) == 3)
    assert set(left(machine, ours).values()) == {"python"}

    said = tell(ours, "dsv4ctl teardown --verify --strays 2>&1; echo status=$?")

    assert said.rstrip().endswith("status=0"), said
    assert "no engines of any kind left" in said
    assert left(machine, ours) == {}
    assert tell(ours, "echo alive").strip() == "alive"
