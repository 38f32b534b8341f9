"""What is easily passed over without a word: a mask, a stopped supervisor, a cut deploy, another model, half a port."""

import json

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import MODEL
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, UNIT, deploy, install, listen, prop


def test_a_masked_unit_stays_masked_and_is_refused_with_what_to_type(machine: Machine) -> None:
    machine.run(("systemctl", "mask", UNIT), timeout_s=30)

    refused = deploy(machine, check=False)

    assert refused.status == Status.HOST
    assert f"cannot deploy {UNIT}: it is masked" in refused.stderr
    assert f"systemctl unmask {UNIT}" in refused.stderr
    assert machine.run(("systemctl", "is-enabled", UNIT), timeout_s=10, check=False).stdout.strip() == "masked"


def test_a_supervisor_that_somebody_stopped_is_told_by_status_and_by_deploy(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    pid = prop(machine, "MainPID")
    machine.run(("kill", "-STOP", pid), timeout_s=5)

    status = machine.run(("dsv4ctl", "status"), timeout_s=20, check=False)
    again = deploy(machine, check=False)
    machine.run(("kill", "-CONT", pid), timeout_s=5)

    assert status.status == again.status == Status.NOT_READY
    assert f"kill -CONT {pid}" in status.stdout
    assert f"its supervisor (pid {pid}) is stopped" in again.stderr
    assert machine.run(("dsv4ctl", "status"), timeout_s=20).status == Status.OK
    assert f"nobody is ended: --evict {pid}" in deploy(machine, "--evict", pid).stderr


def test_a_teardown_looks_at_the_ports_of_what_ran_and_of_what_a_cut_deploy_had_written(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    # What a deploy leaves that is killed after its files and before its stops.
    machine.run(("dsv4ctl", "render", "--port", "30007", "--internal-port", "21001", "--out", "/"), timeout_s=60)

    gone = machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=60).stdout

    for port in (PORT, 20001, 30007, 21001):
        assert f"gone  port {port}: free" in gone


def test_another_model_at_the_same_path_is_a_change(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    file = f"{MODEL}/config.json"
    before = (machine.root / file[1:]).read_text()
    machine.write(file, before.replace('"sliding_window": 128', '"sliding_window": 256'))

    changed = machine.run(("dsv4ctl", "plan", "--port", str(PORT), "--json"), timeout_s=60, check=False)
    machine.write(file, before)

    assert changed.status == Status.CHANGES
    starts = [step["reason"] for step in json.loads(changed.stdout)["steps"] if step["do"] == "Start"]
    assert starts == ["the configuration changed"]
    assert machine.run(("dsv4ctl", "plan", "--port", str(PORT)), timeout_s=60).status == Status.OK


def test_a_port_that_is_only_bound_and_only_on_the_other_loopback_is_taken_for_deploy_and_teardown_alike(
    machine: Machine,
) -> None:
    install(machine)
    with listen(machine, "::1", PORT, v6only=True, bound_only=True):
        refused = deploy(machine, check=False)
        left = machine.run(("dsv4ctl", "teardown", "--verify", "--timeout", "1"), timeout_s=60, check=False)
        machine.end_session()

    assert (refused.status, left.status) == (Status.PORT_TAKEN, Status.PORT_TAKEN)
    assert "has it bound, but does not listen" in refused.stderr
    assert f"LEFT  port {PORT}: " in left.stdout
    assert "has it bound, but does not listen" in left.stdout


def test_a_drop_in_that_waits_for_the_first_deploy_and_starts_something_else_is_refused_until_it_is_reverted(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **QUICK)
    edit = f"/etc/systemd/system/{UNIT}.d/override.conf"
    machine.write(edit, "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n")

    refused = deploy(machine, check=False)

    assert refused.status == Status.HOST
    assert f"cannot deploy {UNIT}: ExecStart= starts /bin/sleep and not our supervisor" in refused.stderr
    assert f"  try: systemctl revert {UNIT} " in refused.stderr
    assert not (machine.root / f"etc/systemd/system/{UNIT}").exists()

    machine.run(("systemctl", "revert", UNIT), timeout_s=30)
    assert deploy(machine).stdout.splitlines()[-1] == f"release 1 serves on port {PORT}"
