"""A pause and the restart brake on a real systemd: no restart, no end, no loop, and words where people look."""

import json
from pathlib import Path

import pytest

from dsv4ctl.model import SuperviseExit
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal import router
from dsv4ctl.rehearsal.private import Machine
from tests import needs
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
    make_user,
    prop,
    systemctl,
    until,
    wait_for_active,
    wait_for_state,
    wait_for_words,
)

STARTED = "dsv4ctl: starting the engine"


def dsv4ctl(machine: Machine, *words: str, check: bool = True) -> tuple[int, str]:
    done = machine.run(("dsv4ctl", *words), timeout_s=90, check=check)
    return done.status, done.stdout + done.stderr


def pause(machine: Machine, for_: str, *more: str) -> None:
    dsv4ctl(machine, "pause", "--reason", "a fan is swapped", "--for", for_, *more)


def kill_engine(machine: Machine) -> None:
    machine.run(("kill", "-KILL", str(inside(machine)["engine"])), timeout_s=5)


def start_until_over(machine: Machine, unit: str) -> None:
    """Start a unit whose start fails, and wait until its supervisor has left."""

    def shown() -> dict[str, str]:
        argv = ("systemctl", "show", unit, "-p", "SubState", "-p", "InvocationID", "-p", "MainPID")
        return dict(line.split("=") for line in machine.run(argv, timeout_s=10).stdout.splitlines())

    def is_over() -> bool:
        now = shown()
        return now["InvocationID"] != before and now["MainPID"] == "0" and now["SubState"] in ("auto-restart", "failed")

    before = shown()["InvocationID"]
    # A start would wait until the delay before an automatic restart is over.
    machine.run(("systemctl", "restart", "--no-block", unit), timeout_s=20)
    until(is_over, lambda: f"{unit}: {shown()}")


def starts(machine: Machine, unit: str = UNIT) -> int:
    return journal(machine, "-u", unit).count(STARTED)


# ---- the brake -----------------------------------------------------------------------------------------------------


def test_a_crash_loop_gets_exactly_so_many_starts_then_is_parked_with_its_cause_until_resume(
    machine: Machine, behaviour: Behave
) -> None:
    configure(machine, '[limits]\nrestart = "1s"\nrestart_max = "1s"\nstarts = 3')
    behaviour(PORT, **QUICK)
    deploy(machine)
    behaviour(PORT, **QUICK, crash_in="dist")
    kill_engine(machine)

    wait_for_state(machine, "failed")

    assert starts(machine) == 3
    assert prop(machine, "ExecMainStatus") == str(int(SuperviseExit.PARKED))
    shown = machine.run(("systemctl", "status", UNIT), timeout_s=10, check=False).stdout
    assert 'Status: "parked since ' in shown
    words = dsv4ctl(machine, "status", check=False)[1]
    assert "  parked  " in words
    assert "3 starts failed within 4h on this host; the last, of server: " in words
    assert "the behaviour file asks for a crash in dist" in words
    assert "(try: dsv4ctl resume)" in words
    assert systemctl(machine, "start", check=False).status != 0
    assert starts(machine) == 3, "by hand it is told what to type, and not started"
    assert "dsv4ctl resume" in dsv4ctl(machine, "status", check=False)[1]
    behaviour(PORT, **QUICK)

    said = dsv4ctl(machine, "resume")[1]

    assert "release the restart brake: server is parked" in said
    assert prop(machine, "ActiveState") == "active"


def test_two_roles_that_take_turns_to_crash_get_no_more_starts_than_one(machine: Machine, behaviour: Behave) -> None:
    configure(machine, f'{router.config(needs.the_router())}[limits]\nrestart = "1h"\nrestart_max = "1h"\nstarts = 5')
    out = machine.run(("dsv4ctl", "render", "--mode", "dual-tp4", "--port", str(PORT), "--out", "/"), timeout_s=60)
    assert "dsv4-server-1.service" in out.stdout
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)
    units = ("dsv4-server-0.service", "dsv4-server-1.service")
    for unit in units:
        port = machine.run(("sh", "-c", f"grep -o -- '--port [0-9]*' /etc/systemd/system/{unit}"), timeout_s=5).stdout
        behaviour(int(port.split()[1]), **QUICK, crash_in="dist")

    for turn in range(8):
        start_until_over(machine, units[turn % 2])

    assert [starts(machine, unit) for unit in units] == [3, 2]
    for unit in units:
        argv = ("systemctl", "show", unit, "-p", "StatusText", "-p", "ExecMainStatus", "--value")
        assert "(server-0 3, server-1 2)" in machine.run(argv, timeout_s=10).stdout


def test_where_no_tally_can_be_kept_systemds_own_limit_is_the_fence(machine: Machine, behaviour: Behave) -> None:
    configure(machine, '[limits]\nrestart = "1s"\nrestart_max = "1s"\nstarts = 1')
    behaviour(PORT, **QUICK, crash_in="dist")
    machine.run(("mkdir", "-p", "/var/lib/dsv4ctl/starts/server/tally.json/in-the-way"), timeout_s=5)
    deploy(machine, check=False)
    systemctl(machine, "start", check=False)

    wait_for_state(machine, "failed", limit_s=60)

    said = journal(machine, "-u", UNIT)
    assert "cannot write /var/lib/dsv4ctl/starts/server/tally.json" in said
    assert "Start request repeated too quickly" in said


# ---- the pause -----------------------------------------------------------------------------------------------------


def test_a_crash_within_a_pause_is_told_not_restarted_and_handled_when_the_pause_ends(
    machine: Machine, behaviour: Behave
) -> None:
    configure(machine, '[limits]\nrestart = "1s"')
    behaviour(PORT, **QUICK)
    deploy(machine)
    pause(machine, "2h")
    wait_for_words(machine, "by root: a fan is swapped")
    kill_engine(machine)

    wait_for_words(machine, "the engine was killed by SIGKILL while it served")
    said = dsv4ctl(machine, "status", check=False)[1]
    refused, why = dsv4ctl(machine, "deploy", "--mode", "single-tp4", "--port", str(PORT), check=False)

    assert (prop(machine, "ActiveState"), prop(machine, "NRestarts"), starts(machine)) == ("active", "0", 1)
    assert "  paused  " in said
    assert "note: paused until" in said
    assert refused == Status.BUSY
    assert "dsv4ctl deploy --resume" in why
    pause(machine, "3s", "--replace")  # takes the place of the long one, and ends by itself
    until(lambda: prop(machine, "NRestarts") == "1", lambda: last_lines(machine))
    wait_for_active(machine)
    until(lambda: starts(machine) == 2, lambda: last_lines(machine))


DEPLOYS = ("deploy", "--mode", "single-tp4", "--port", str(PORT), "--user", "op", "--resume")


@pytest.mark.parametrize(("user", "ended"), [(None, ("resume",)), ("op", DEPLOYS)])
def test_who_ends_a_pause_gets_back_what_died_in_it(
    machine: Machine, behaviour: Behave, user: str | None, ended: tuple[str, ...]
) -> None:
    make_user(machine, user)
    configure(machine, '[limits]\nrestart = "1h"\nrestart_max = "1h"')
    behaviour(PORT, **QUICK)
    deploy(machine, *(["--user", user] if user else []))
    pause(machine, "2h")
    kill_engine(machine)
    wait_for_words(machine, "nothing is restarted before it ends")
    assert "killed by SIGKILL" in (machine.root / "var/lib/dsv4ctl/starts/server/tally.json").read_text()

    said = dsv4ctl(machine, *ended)[1]

    assert "end the pause: root asked for it: a fan is swapped" in said
    assert prop(machine, "ActiveState") == "active"
    assert "paused" not in dsv4ctl(machine, "status", check=False)[1]


def test_within_a_pause_a_teardown_works_and_a_start_waits(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    pause(machine, "2h")
    kill_engine(machine)
    wait_for_words(machine, "nothing is restarted before it ends")

    assert dsv4ctl(machine, "teardown", "--verify")[0] == Status.OK
    systemctl(machine, "start", "--no-block")
    wait_for_words(machine, "the engine is started when it ends")
    assert starts(machine) == 1

    dsv4ctl(machine, "resume")
    assert prop(machine, "ActiveState") == "active"
    assert "nothing to resume" in dsv4ctl(machine, "resume")[1]


# ---- the reboot ----------------------------------------------------------------------------------------------------


def quick(machine: Machine) -> None:
    machine.write(f"/run/standin/{PORT}.json", json.dumps(QUICK))


def test_after_a_power_cut_the_host_serves_again_within_a_pause_it_waits_and_what_was_parked_stays_parked(
    tmp_path: Path,
) -> None:
    with rehearsal.boot(before=quick) as first:
        configure(first, '[limits]\nrestart = "1s"\nrestart_max = "1s"\nstarts = 2')
        deploy(first)
        serving = first.image(tmp_path / "serving.tar")
        pause(first, "2h")
        paused = first.image(tmp_path / "paused.tar")
        dsv4ctl(first, "resume")
        first.write(f"/run/standin/{PORT}.json", json.dumps({**QUICK, "crash_in": "dist"}))
        kill_engine(first)
        wait_for_state(first, "failed")
        parked = first.image(tmp_path / "parked.tar")

    with rehearsal.boot(image=serving, before=quick) as again:
        wait_for_active(again)
        assert "nothing to do" in deploy(again).stdout
        assert "note: 1 of 2 starts failed" in dsv4ctl(again, "status", check=False)[1], "a power cut leaves no end"
    with rehearsal.boot(image=paused, before=quick) as again:
        wait_for_words(again, "the engine is started when it ends")
        dsv4ctl(again, "resume")
        assert prop(again, "ActiveState") == "active"
    with rehearsal.boot(image=parked, before=quick) as again:
        wait_for_state(again, "failed")
        assert "parked since" in prop(again, "StatusText")
        assert STARTED not in last_lines(again)
        dsv4ctl(again, "resume")
        assert prop(again, "ActiveState") == "active"
