"""Faults of restarts: a start limit that holds the operator up, a core file that holds the restart up (B48, B54)."""

import time

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    UNIT,
    configure,
    deploy,
    inside,
    journal,
    last_lines,
    processes_of_ours,
    prop,
    systemctl,
    until,
    wait_for_active,
    wait_for_state,
)


def test_automatic_restarts_end_at_the_limit_and_an_operators_deploy_clears_it_and_says_so(
    machine: Machine, behaviour: Behave
) -> None:
    """B48: by hand the fixed cause would still be refused, for manual and automatic starts share one counter."""
    configure(machine, '[limits]\nrestart = "1s"\nrestart_max = "1s"\nstarts = 2')
    behaviour(PORT, **QUICK)
    deploy(machine)
    behaviour(PORT, **QUICK, crash_in="dist")
    machine.run(("kill", "-KILL", str(inside(machine)["engine"])), timeout_s=5)

    wait_for_state(machine, "failed")
    assert "parked since" in prop(machine, "StatusText")
    behaviour(PORT, **QUICK)
    assert systemctl(machine, "start", check=False).status != 0
    again = deploy(machine)

    assert "release the restart brake: server is parked" in again.stderr
    assert f"clear the failed state of {UNIT}: it failed before (" in again.stderr
    assert prop(machine, "ActiveState") == "active"


def test_what_was_started_by_hand_or_failed_before_does_not_count_against_a_deploy(
    machine: Machine, behaviour: Behave
) -> None:
    """B48: the counter's interval is hours long, to catch failures that take as long; an operator tries more often."""
    configure(machine, "[limits]\nstarts = 1")
    behaviour(PORT, **QUICK)
    deploy(machine)
    systemctl(machine, "restart")
    systemctl(machine, "stop")
    behaviour(PORT, **QUICK, crash_in="dist")

    failed = deploy(machine, check=False)
    assert failed.status == Status.NOT_READY
    assert "the behaviour file asks for a crash in dist" in failed.stderr
    behaviour(PORT, **QUICK)
    assert deploy(machine).status == 0


def test_a_crash_with_much_memory_is_restarted_at_once_and_leaves_no_core_file(
    machine: Machine, behaviour: Behave
) -> None:
    """B54: a restart would wait until 2 GB are written; it comes within its delay and 5 s."""
    configure(machine, '[limits]\nrestart = "2s"')
    behaviour(PORT, **QUICK, heap_mb=2048, abort_after_s=1.0)
    deploy(machine)
    first = inside(machine)["engine"]
    until(lambda: not alive(machine, first), lambda: last_lines(machine), every_s=0.02)
    behaviour(PORT, **QUICK)

    died = time.monotonic()
    until(lambda: prop(machine, "NRestarts") == "1", lambda: last_lines(machine))
    took_s = time.monotonic() - died

    assert took_s < 2 + 5
    wait_for_active(machine)
    assert "the engine was killed by SIGABRT while it served" in journal(machine, "-u", UNIT)
    assert not list((machine.root / "var/cache/dsv4ctl/server").glob("core*"))
    assert processes_of_ours(machine) > 0


CRASH = """
import mmap, os, pathlib, resource, sys
pathlib.Path(f"/sys/fs/cgroup/{sys.argv[1]}/cgroup.procs").write_text("0")
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
# The kernel looks at each page of what was touched once, and writes those that are there: long, and of no size.
MAP_NORESERVE = 0x4000
held = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
held[0] = 1
os.chdir("/run/standin")
print("up", flush=True)
os.abort()
"""


def test_a_process_that_writes_its_core_file_is_told_from_one_that_hangs(machine: Machine, behaviour: Behave) -> None:
    """B54: nothing of the unit goes on before it is written, and nobody would know why."""
    pattern = (machine.root / "proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or "|" in pattern:
        pytest.skip(f"this kernel sends core files elsewhere: {pattern}")
    behaviour(PORT, **QUICK)
    deploy(machine)

    crashing = machine.popen(("python3", "-c", CRASH, f"dsv4.slice/{UNIT}"))
    assert crashing.stdout is not None
    assert crashing.stdout.readline() == "up\n", crashing.communicate()
    shown = machine.run(("dsv4ctl", "status"), timeout_s=20).stdout

    assert f"(python3) of {UNIT} has crashed and writes its core file; nothing goes on before that is done" in shown
    machine.run(("sh", "-c", f"kill -KILL {shown.partition('note: pid ')[2].split()[0]}"), timeout_s=10)
    crashing.wait(timeout=30)
    machine.run(("sh", "-c", "rm -f /run/standin/core*"), timeout_s=10)


def alive(machine: Machine, pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return (machine.root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
