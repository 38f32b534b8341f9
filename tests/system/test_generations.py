"""Numbered releases on the real systemd: what a bad one leaves, what serves after it, and the way back by hand."""

import json
import os
from typing import Any

import pytest

from dsv4ctl.child import Done
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system import pairs
from tests.system.deploying import PORT, QUICK, UNIT, deploy, locked_by, processes_of_ours, prop, until

# The stand-in behaves by its port, so that a release on this one is bad and the one before it is not.
BAD_PORT = 30009
BAD: dict[str, object] = {**QUICK, "crash_in": "weights"}


def kept(machine: Machine, number: int, what: str = "release") -> Any:
    return json.loads((machine.root / f"var/lib/dsv4ctl/releases/{number:04}/{what}.json").read_text())


def kept_numbers(machine: Machine) -> list[str]:
    return sorted(path.name for path in (machine.root / "var/lib/dsv4ctl/releases").iterdir())


def run(machine: Machine, *words: str) -> Done:
    return machine.run(("dsv4ctl", *words), timeout_s=120, check=False)


@pytest.fixture
def served(machine: Machine, behaviour: Behave) -> Done:
    """Release 1 serves, and whatever comes on the other port will crash in its load."""
    behaviour(PORT, **QUICK)
    behaviour(BAD_PORT, **BAD)
    return deploy(machine, "--reason", "to begin with")


def test_a_bad_deploy_returns_to_the_last_release_that_was_proved(machine: Machine, served: Done) -> None:
    assert served.stdout.splitlines()[-1] == f"release 1 serves on port {PORT}"

    failed = run(machine, "deploy", "--port", str(BAD_PORT), "--reason", "another port")

    assert failed.status == Status.REVERTED
    assert "the behaviour file asks for a crash in weights" in failed.stderr
    assert failed.stderr.splitlines()[-1] == f"release 1 serves again on port {PORT}"
    assert deploy(machine).stdout.splitlines()[0] == "nothing to do"
    first, second = kept(machine, 1), kept(machine, 2)
    assert (first["reason"], second["reason"]) == ("to begin with", "another port")
    assert second["command"].endswith("deploy --port 30009 --reason 'another port'")
    good, bad = kept(machine, 1, "verdict"), kept(machine, 2, "verdict")
    assert (good["outcome"], bad["outcome"], bad["serves"]) == (
        "proved",
        "failed",
        f"release 1 serves again on port {PORT}",
    )
    assert {"weights", "proof"} <= {one["phase"] for one in good["phases"]}
    assert good["proof"]["seconds"] > 0
    evidence = kept(machine, 2, "evidence")
    assert any("asks for a crash" in line for line in evidence["journal"])
    assert evidence["units"][0]["name"] == "dsv4-server.service"
    assert evidence["states"][0]["phase"] == "failed"
    assert len(evidence["gpus"]["gpus"]) == 8


def test_a_unit_that_fails_before_its_supervisor_says_anything_is_reverted_too(machine: Machine, served: Done) -> None:
    assert served.status == Status.OK
    # Fails once, so that the way back is free.
    once = "[Service]\nExecStartPre=/bin/sh -c '! rm /run/once'\n"
    machine.write("/etc/systemd/system/dsv4-server.service.d/once.conf", once)
    machine.write("/run/once", "")

    failed = run(machine, "deploy", "--port", str(PORT), "--context-length", "64k")

    assert failed.status == Status.REVERTED, failed.stderr
    assert failed.stderr.splitlines()[-1] == f"release 1 serves again on port {PORT}"
    assert kept(machine, 2, "verdict")["outcome"] == "failed"


TAKER = """
import socket, sys, time
while True:
    try:
        taken = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        time.sleep(0.01)
sys.stdin.read()
"""


def test_a_way_back_that_is_taken_meanwhile_leaves_nothing_that_a_reboot_would_start(
    machine: Machine, served: Done
) -> None:
    assert served.status == Status.OK
    taker = machine.popen(("python3", "-c", TAKER, str(PORT)))

    failed = run(machine, "deploy", "--port", str(BAD_PORT))

    assert failed.status == Status.NOT_READY, failed.stderr
    assert "release 1 cannot be brought back either: cannot give port" in failed.stderr
    assert "then dsv4ctl rollback 1" in failed.stderr
    assert failed.stderr.splitlines()[-1] == "nothing serves now"
    assert (prop(machine, "ActiveState"), prop(machine, "UnitFileState")) == ("inactive", "disabled")
    assert taker.poll() is None


def test_a_bad_release_that_is_not_to_be_reverted_is_left_down_and_no_reboot_starts_it(
    machine: Machine, served: Done
) -> None:
    failed = run(machine, "deploy", "--port", str(BAD_PORT), "--no-revert")

    assert served.status == Status.OK
    assert failed.status == Status.NOT_READY
    assert failed.stderr.splitlines()[-1] == "nothing serves now"
    assert (prop(machine, "ActiveState"), prop(machine, "UnitFileState")) == ("inactive", "disabled")
    assert processes_of_ours(machine) == 0

    back = deploy(machine)
    assert back.stdout.splitlines()[-1] == f"release 3 serves on port {PORT}"
    assert prop(machine, "UnitFileState") == "enabled"


def test_a_rollback_is_a_deploy_of_what_was_kept_under_a_number_of_its_own(machine: Machine, served: Done) -> None:
    assert served.status == Status.OK
    second = run(machine, "deploy", "--port", str(PORT), "--context-length", "128k", "--reason", "cheaper")
    assert second.stdout.splitlines()[-1] == f"release 2 serves on port {PORT}"
    unit = machine.root / "etc/systemd/system/dsv4-server.service"
    shorter = unit.read_text()

    planned = run(machine, "rollback", "--dry-run")
    back = run(machine, "rollback", "--reason", "customers need more")

    assert planned.status == Status.CHANGES
    assert "-Digest=" in planned.stdout
    assert back.stdout.splitlines()[-1] == f"release 3 serves on port {PORT}", back.stderr
    assert unit.read_text() != shorter
    assert kept(machine, 3)["release"] == kept(machine, 1)["release"]

    listed = run(machine, "history").stdout.splitlines()
    assert [line[:4].split() for line in listed[1:]] == [["*", "3"], ["2"], ["1"]]
    assert listed[1].endswith("rollback to 1: customers need more")
    values = json.loads(run(machine, "history", "--json").stdout)["releases"]
    assert [(one["release"], one["installed"], one["verdict"]["outcome"]) for one in values] == [
        (1, False, "proved"),
        (2, False, "proved"),
        (3, True, "proved"),
    ]
    differs = run(machine, "diff", "1", "2").stdout
    assert "- memory.context_length = -\n+ memory.context_length = 131072 (128k)\n" in differs
    assert "--context-length 131072" in differs
    assert run(machine, "diff", "1").stdout == "no difference\n"
    assert "proved:   dsv4-server.service served DeepSeek-V4-Flash" in run(machine, "history", "3").stdout

    assert deploy(machine, "--keep", "1").stdout.splitlines()[0] == "nothing to do"
    assert kept_numbers(machine) == ["0003"]


def test_a_saved_plan_is_refused_when_what_it_stands_on_has_moved_and_deployed_when_it_has_not(
    machine: Machine, served: Done
) -> None:
    assert served.status == Status.OK
    planned = run(machine, "plan", "--port", str(PORT), "--context-length", "128k", "--out", "/root/plan.json")
    edit = f"/etc/systemd/system/{UNIT}.d/override.conf"
    machine.write(edit, "[Service]\nEnvironment=HF_TOKEN=hf_secret\n")
    machine.run(("systemctl", "daemon-reload"), timeout_s=20)

    refused = run(machine, "deploy", "--plan", "/root/plan.json")

    assert planned.status == Status.CHANGES
    assert refused.status == Status.MOVED
    assert f"{UNIT}: {edit} is new" in refused.stderr
    assert kept_numbers(machine) == ["0001"]
    assert f"warning: {UNIT} is changed by {edit}" in run(machine, "plan", "--port", str(PORT)).stderr
    both = run(machine, "deploy", "--plan", "/root/plan.json", "--port", "30002")
    assert both.status == Status.USAGE

    (machine.root / edit[1:]).unlink()
    machine.run(("systemctl", "daemon-reload"), timeout_s=20)
    done = run(machine, "deploy", "--plan", "/root/plan.json", "--reason", "as agreed")
    assert done.stdout.splitlines()[-1] == f"release 2 serves on port {PORT}", done.stderr
    again = run(machine, "deploy", "--plan", "/root/plan.json")
    assert again.status == Status.MOVED
    assert "installed is release 2, and was release 1" in again.stderr


def test_status_names_every_way_in_which_a_unit_has_drifted(machine: Machine, served: Done) -> None:
    assert served.status == Status.OK
    file = machine.root / f"etc/systemd/system/{UNIT}"
    file.write_text(file.read_text().replace("Restart=on-failure", "Restart=no"))

    edited = run(machine, "status").stdout
    assert f"note: {UNIT} was edited since release 1 wrote it" in edited
    assert f"note: systemd has not read the changed {UNIT} yet" in edited

    drop_in = f"/etc/systemd/system/{UNIT}.d/override.conf"
    machine.write(drop_in, "[Service]\nNice=1\n")
    assert f"note: {UNIT} will be changed by {drop_in}, which systemd has not read yet" in run(machine, "status").stdout
    machine.run(("systemctl", "daemon-reload"), timeout_s=20)
    assert f"note: {UNIT} is changed by {drop_in}\n" in run(machine, "status").stdout
    machine.run(("systemctl", "revert", UNIT), timeout_s=20)

    deploy(machine)
    run(machine, "render", "--port", str(PORT), "--context-length", "128k", "--out", "/")
    assert "(release 1), its files say" in run(machine, "status").stdout


@pytest.mark.parametrize("turn", range(int(os.environ.get("DSV4CTL_DEPLOYS_AT_ONCE", "1"))))
def test_of_two_deploys_at_once_one_works_and_the_other_says_who_is_at_it(
    machine: Machine, behaviour: Behave, turn: int
) -> None:
    behaviour(PORT, **(QUICK | {"load_s": 2.0}))
    both = [
        machine.popen(("dsv4ctl", "deploy", "--port", str(PORT), "--reason", f"{turn} {name}")) for name in ("a", "b")
    ]
    said = [one.communicate(timeout=120)[1] for one in both]

    assert sorted(one.returncode for one in both) == [Status.OK, Status.BUSY]
    first = next(n for n, one in enumerate(both) if one.returncode == Status.OK)
    assert f"holds the lock for deploy ({turn} {'ab'[first]}) since" in said[1 - first]
    assert kept(machine, 1)["reason"] == f"{turn} {'ab'[first]}"


def test_who_waits_deploys_when_the_other_is_through(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    first = machine.popen(("dsv4ctl", "deploy", "--port", str(PORT), "--reason", "first"))
    until((machine.root / "run/dsv4ctl/lock").exists, lambda: "nobody takes the lock")

    second = run(machine, "deploy", "--port", str(PORT), "--context-length", "128k", "--wait")

    assert first.wait(timeout=60) == Status.OK
    assert second.status == Status.OK, second.stderr
    assert "waiting: root on " in second.stderr
    assert second.stdout.splitlines()[-1] == f"release 2 serves on port {PORT}"


def test_the_audit_trail_tells_who_did_what_and_what_came_of_it(machine: Machine, served: Done) -> None:
    run(machine, "deploy", "--port", str(BAD_PORT), "--reason", "try it")
    run(machine, "teardown", "--verify", "--reason", "maintenance")
    run(machine, "rollback", "7")

    lines = json.loads(run(machine, "history", "--audit", "--json").stdout)["audit"]

    assert served.status == Status.OK
    assert [(line["what"], line["reason"], line["status"]) for line in lines] == [
        ("deploy", "to begin with", 0),
        ("deploy", "try it", Status.REVERTED),
        ("teardown", "maintenance", 0),
        ("rollback", "", Status.USAGE),
    ]
    assert {line["who"] for line in lines} == {"root"}
    assert lines[1]["says"].endswith(f"release 1 serves again on port {PORT}")
    assert any(step.startswith("start dsv4-server.service") for step in lines[1]["steps"])
    assert "cannot find release 7 (there is: 1, 2)" in lines[3]["says"]
    shown = run(machine, "history", "--audit").stdout.splitlines()
    assert len(shown) == 4
    assert f"dsv4ctl deploy --port {BAD_PORT} --reason 'try it': status 12" in shown[1]


def test_a_deploy_that_is_killed_is_in_the_audit_trail_and_its_release_has_no_verdict(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **(QUICK | {"load_s": 3.0}))
    release = machine.root / "var/lib/dsv4ctl/releases/0001/release.json"
    deploying = machine.popen(("dsv4ctl", "deploy", "--port", str(PORT), "--reason", "killed"))
    until(release.exists, lambda: "it is never kept", every_s=0.01)
    machine.run(("kill", "-KILL", str(locked_by(machine))), timeout_s=5)
    deploying.wait(timeout=20)
    cut = run(machine, "history").stdout

    done = deploy(machine)

    assert "none: it was cut short, or is under way" in cut
    assert done.stdout.splitlines()[-1] == f"release 1 serves on port {PORT}"
    lines = json.loads(run(machine, "history", "--audit", "--json").stdout)["audit"]
    assert [(line["what"], line["reason"], line["status"]) for line in lines] == [
        ("deploy", "killed", None),
        ("deploy", "", 0),
    ]


def test_a_whole_pair_comes_back_with_its_router_when_the_server_in_its_place_fails(
    machine: Machine, behaviour: Behave
) -> None:
    pairs.prepare(machine)
    pairs.deploy(machine, "small")
    behaviour(BAD_PORT, **BAD)

    failed = run(machine, "deploy", "--mode", "single-tp4", "--port", str(BAD_PORT))

    assert failed.status == Status.REVERTED, failed.stderr
    assert failed.stderr.splitlines()[-1] == f"release 1 serves again on port {PORT}"
    assert pairs.probe(machine).status == Status.OK
    assert not (machine.root / f"etc/systemd/system/{UNIT}").exists()
    failures = machine.run(("systemctl", "list-units", "--failed", "--plain", "--no-legend", "dsv4*"), timeout_s=10)
    assert failures.stdout == ""
