"""Faults of a start: limits that end it too early, whose word counts, what is ready (B41, B43, B44, B70, B87)."""

import json
import time

import pytest

from dsv4ctl.model import SuperviseExit
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    UNIT,
    configure,
    deploy,
    install,
    journal,
    processes_of_ours,
    prop,
    systemctl,
    wait_for_active,
    wait_for_words,
)


def edit(machine: Machine, text: str) -> None:
    """What `systemctl edit` does."""
    machine.write(f"/etc/systemd/system/{UNIT}.d/override.conf", text)
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_load_that_makes_progress_outlasts_any_start_limit(machine: Machine, behaviour: Behave) -> None:
    """B41: the supervisor extends the limit as long as the load moves; here it takes twice as long as it."""
    behaviour(PORT, **(QUICK | {"load_s": 6}))
    install(machine)
    edit(machine, "[Service]\nTimeoutStartSec=3\n")

    began = time.monotonic()
    systemctl(machine, "start")

    assert time.monotonic() - began > 6
    assert prop(machine, "TimeoutStartUSec") == "3s"
    assert prop(machine, "ActiveState") == "active"


def test_a_wait_within_one_phase_outlasts_the_start_limit_up_to_the_stall_limit(
    machine: Machine, behaviour: Behave
) -> None:
    """B41: between load and bind nothing is said for long; only the stall limit may end that, with its words."""
    configure(machine, '[limits]\nstall = "5s"')
    behaviour(PORT, **(QUICK | {"bind_late_s": 60}))
    install(machine)
    edit(machine, "[Service]\nTimeoutStartSec=3\n")

    began = time.monotonic()
    failed = systemctl(machine, "start", check=False)

    assert failed.status != 0
    assert time.monotonic() - began > 5
    assert "stalled in graphs 36/36 for 5 s" in prop(machine, "StatusText")
    assert prop(machine, "ExecMainStatus") == str(int(SuperviseExit.STALLED))


OBJECTIONS = {
    "TimeoutStartSec=90": "TimeoutStartSec=90 is shorter than the start and its proof may take",
    "TimeoutStopSec=15": "TimeoutStopSec=15 is shorter than the drain and the engine's own stop may take",
    "KillMode=process": "KillMode=process: the engine's workers would survive a stop",
}


def test_a_drop_in_that_breaks_the_nesting_of_limits_is_named(machine: Machine, behaviour: Behave) -> None:
    """B43, B87: of two timers that do not know each other the shorter wins, and systemd has no word to say about it."""
    behaviour(PORT, **QUICK)
    deploy(machine)

    for drop_in, objection in OBJECTIONS.items():
        edit(machine, f"[Service]\n{drop_in}\n")

        status = machine.run(("dsv4ctl", "status"), timeout_s=20).stdout
        assert f"note: {UNIT}: {objection}" in status
        assert f"warning: {UNIT}: {objection}" in deploy(machine).stderr
        verified = machine.run(("systemd-analyze", "verify", "--man=no", UNIT), timeout_s=30)
        assert verified.stdout + verified.stderr == ""


def test_limits_of_every_size_are_written_nested_and_none_is_systemds_default(
    machine: Machine, behaviour: Behave
) -> None:
    """B41, B43, B87: 90 s end every real start; each limit has room for those within it, and gets no objection."""
    configure(machine, '[limits]\nstart = "2h"\nproof = "1h"\ndrain = "1h"\nengine_stop = "30m"\nstarts = 9')
    behaviour(PORT, **QUICK)

    warned = deploy(machine).stderr

    assert [prop(machine, name) for name in ("TimeoutStartUSec", "TimeoutStopUSec")] == ["3h 2min", "1h 31min 30s"]
    assert f"{UNIT}: " not in "".join(line for line in warned.splitlines() if line.startswith("warning"))
    notes = json.loads(machine.run(("dsv4ctl", "status", "--json"), timeout_s=20).stdout)["rows"][0]["notes"]
    # In a container, whose systemd may not raise limits, that is told and is none of the unit's fault.
    assert [note for note in notes if "LimitMEMLOCK=infinity" not in note and "LimitNOFILE=" not in note] == []


# ---- whose word counts -----------------------------------------------------------------------------------------------

SAYS_READY = """
import os, socket, sys
if sys.argv[1]:
    open(f"/sys/fs/cgroup/{sys.argv[1]}/cgroup.procs", "w").write("0")
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    notify.sendto(b"READY=1\\nSTATUS=so sagt ein Fremder", "/run/systemd/notify")
"""


@pytest.mark.parametrize("cgroup", ["", f"dsv4.slice/{UNIT}"])
def test_ready_from_anybody_but_the_supervisor_is_refused(machine: Machine, behaviour: Behave, cgroup: str) -> None:
    """B44: from outside the unit's cgroup, and from inside it by another process than the main one."""
    behaviour(PORT, **(QUICK | {"stall_in": "weights"}))
    install(machine)
    systemctl(machine, "start", "--no-block")
    wait_for_words(machine, "loading weights 22/46")

    machine.run(("python3", "-c", SAYS_READY, cgroup), timeout_s=10)
    time.sleep(0.5)

    assert prop(machine, "ActiveState") == "activating"
    assert prop(machine, "StatusText").startswith("loading weights")


def test_the_journal_of_a_start_a_restart_and_a_stop_has_no_refused_message(
    machine: Machine, behaviour: Behave
) -> None:
    """B44: no process but the supervisor is given the socket, so nobody's message is dropped with a line each."""
    behaviour(PORT, **QUICK, dump_to="/run/dsv4ctl/server/dump.json")
    deploy(machine)
    systemctl(machine, "restart")
    machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=60)

    lines = journal(machine).splitlines()
    assert any("ready: DeepSeek-V4-Flash" in line for line in lines)
    assert [line for line in lines if "notification" in line or "only permitted" in line or "cannot tell" in line] == []
    dump = json.loads((machine.root / "run/dsv4ctl/server/dump.json").read_text())
    assert "NOTIFY_SOCKET" not in dump["environment"]


# ---- what is called ready --------------------------------------------------------------------------------------------


def test_an_engine_is_active_only_once_it_generates_however_early_its_health_is_green(
    machine: Machine, behaviour: Behave
) -> None:
    """B70: health says 200 from the first second on, and the first request would hang."""
    behaviour(PORT, **QUICK, generation_works_after_s=10)
    install(machine)
    began = time.monotonic()
    systemctl(machine, "start", "--no-block")

    wait_for_words(machine, "proving it with one generation")
    green_s = time.monotonic() - began
    wait_for_active(machine)
    took_s = time.monotonic() - began

    assert green_s < 9
    assert 10 <= took_s < 20


def test_an_engine_that_never_generates_is_never_active(machine: Machine, behaviour: Behave) -> None:
    """B70: it says that it is ready and healthy, and the request of the proof hangs."""
    configure(machine, '[limits]\nproof = "2s"')
    behaviour(PORT, **QUICK, health_but_no_generation=True)

    failed = deploy(machine, check=False)

    assert failed.status == Status.NOT_READY
    assert "not proved within 2 s: " in failed.stderr
    assert f"Started {UNIT}" not in journal(machine, "-u", UNIT)
    assert processes_of_ours(machine) == 0
