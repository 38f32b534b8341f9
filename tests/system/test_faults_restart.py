"""Faults of restarts: a start limit that holds the operator up, a core file that holds the restart up (B48, B54)."""

import time
from itertools import pairwise

import pytest

from dsv4ctl import brake, maintenance, systemd
from dsv4ctl.model import Limits
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
    install,
    journal,
    last_lines,
    processes_of_ours,
    prop,
    systemctl,
    until,
    wait_for_active,
    wait_for_state,
    wait_for_words,
)

# The first systemd with RestartSteps=.
SLOWS_DOWN = 254


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


def failures(machine: Machine) -> list[float]:
    """When the starts of the server failed, as its supervisor keeps it."""
    file = machine.root / "var/lib/dsv4ctl/starts/server/tally.json"
    return [one.at for one in maintenance.tally(file).failed]


def test_restarts_are_slower_each_time_until_the_brake_closes_whatever_systemd_is_there(
    machine: Machine, behaviour: Behave
) -> None:
    """B48: an engine that fails at once would be tried every `limits.restart`, where systemd knows no RestartSteps=."""
    configure(machine, '[limits]\nrestart = "1s"\nrestart_max = "8s"\nstarts = 4')
    behaviour(PORT, **QUICK, crash_in="dist")
    install(machine)
    systemctl(machine, "start", "--no-block")

    wait_for_state(machine, "failed", limit_s=120)

    at = failures(machine)
    gaps = [later - earlier for earlier, later in pairwise(at)]
    limits = Limits(restart_s=1, restart_max_s=8, starts=4)
    assert len(at) == limits.starts
    assert all(gap >= brake.restart_delay_s(count, limits) for count, gap in enumerate(gaps, 1)), gaps
    assert "parked since" in prop(machine, "StatusText")
    if systemd.version() < SLOWS_DOWN:
        said = [line for line in journal(machine, "-u", UNIT).splitlines() if line.startswith("dsv4ctl: waiting ")]
        assert [line.partition(": ")[2].split(" starts failed")[0][-1] for line in said] == ["2", "3"], said


def test_who_starts_by_hand_or_deploys_does_not_wait_for_a_restart_s_turn(machine: Machine, behaviour: Behave) -> None:
    """B48: the wait is for what nobody asked for; the third failure makes it half an hour."""
    if systemd.version() >= SLOWS_DOWN:
        pytest.skip("this systemd slows restarts down itself")
    configure(machine, '[limits]\nrestart = "1s"\nrestart_max = "1d"\nstarts = 4')
    behaviour(PORT, **QUICK, crash_in="dist")
    install(machine)
    systemctl(machine, "start", "--no-block")
    wait_for_words(machine, "with this restart: 2 starts failed within 4h; the last: ")
    behaviour(PORT, **QUICK)

    systemctl(machine, "restart")
    assert prop(machine, "ActiveState") == "active"

    behaviour(PORT, **QUICK, crash_in="dist")
    machine.run(("kill", "-KILL", str(inside(machine)["engine"])), timeout_s=5)
    wait_for_words(machine, "with this restart: 3 starts failed within 4h; the last: ")
    behaviour(PORT, **QUICK)

    said = deploy(machine)

    assert "release the restart brake: earlier starts shall not count" in said.stderr
    assert prop(machine, "ActiveState") == "active"


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
