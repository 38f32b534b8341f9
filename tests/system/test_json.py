"""--json on a host where something happens: one object of every command, of a refusal, and of an interruption."""

import json
from typing import Any

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.commands import HAVING_JSON
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, listen, locked_by, until, wait_for_words
from tests.system.strays import command, engines, listening, server_line

# A busy host may only make this slow.
PATIENCE_S = 240

# Command -> what it is told beside --json, its exit status, what it surely says; in an order in which all goes well.
WELL: dict[tuple[str, ...], tuple[tuple[str, ...], int, str]] = {
    ("adopt",): ((), 0, "engines"),
    ("init",): ((), 0, "config"),
    ("config", "show"): ((), 0, "port"),
    ("topology",): ((), 0, "nodes"),
    ("memory",): (("--gpu", "h200"), 0, "plans"),
    ("render",): ((), 0, "/etc/systemd/system/dsv4-server.service"),
    ("plan",): ((), Status.CHANGES, "steps"),
    ("deploy",): ((), 0, "verdict"),
    ("status",): ((), 0, "rows"),
    ("probe",): ((), 0, "verdict"),
    ("who",): ((str(PORT),), 0, "holders"),
    ("logs",): (("-n", "1"), 0, "message"),
    ("pause",): (("--for", "1h", "--reason", "a fan"), 0, "until"),
    ("resume",): ((), 0, "steps"),
    ("history",): ((), 0, "releases"),
    ("diff",): (("1",), 0, "diff"),
    ("rollback",): (("1",), 0, "changed"),
    ("teardown",): (("--verify",), 0, "checks"),
}


def only_object(text: str) -> dict[str, Any]:
    (line,) = text.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_every_command_that_has_json_says_one_object_and_no_problem_where_all_is_well(
    machine: Machine, behaviour: Behave
) -> None:
    assert set(WELL) == set(HAVING_JSON)
    behaviour(PORT, **QUICK)
    machine.popen(("bash", "-c", server_line(PORT, on=(0, 1, 2, 3))))
    until(lambda: listening(machine, PORT), lambda: "it does not listen", limit_s=PATIENCE_S)

    for words, (more, status, key) in WELL.items():
        done = command(machine, *words, *more, "--json", timeout_s=PATIENCE_S)
        assert done.status == status, (words, done)
        found = only_object(done.stdout)
        assert (key in found, "problem" in found) == (True, False), (words, found)
    assert engines(machine) == {}


def test_a_deploy_that_is_refused_says_its_plan_and_who_holds_the_port(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    listen(machine, "127.0.0.1", PORT)

    for words in (("deploy",), ("plan",), ("deploy", "--dry-run")):
        done = command(machine, *words, "--port", str(PORT), "--json", timeout_s=PATIENCE_S)

        found = only_object(done.stdout)
        problem = found["problem"]
        assert (done.status, problem["kind"], problem["status"]) == (Status.PORT_TAKEN, "port taken", done.status)
        (holder,) = problem["details"]["holders"]
        assert (problem["details"]["port"], holder["user"], holder["comm"]) == (PORT, "root", "python3")
        assert found["refusals"] == [problem["message"]]
        assert any(step["do"] == "Start" for step in found["steps"])
        assert f"cannot give port {PORT}" in done.stderr


def test_a_deploy_that_is_interrupted_says_how_far_it_came_and_status_meanwhile_who_is_at_work(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **(QUICK | {"load_s": 600}))
    deploying = machine.popen(("dsv4ctl", "deploy", "--port", str(PORT), "--reason", "a new port", "--json"))
    wait_for_words(machine, "starting the engine", limit_s=PATIENCE_S)

    meanwhile = command(machine, "status")
    values = only_object(command(machine, "status", "--json").stdout)
    refused = only_object(command(machine, "teardown", "--json").stdout)["problem"]
    machine.run(("kill", "-TERM", str(pid := locked_by(machine))), timeout_s=10)
    out, err = deploying.communicate(timeout=PATIENCE_S)

    assert meanwhile.status == Status.BUSY
    assert "note: a deploy is at work: root on " in meanwhile.stdout
    assert (values["well"], values["work"]["reason"], values["work"]["pid"]) == (False, "a new port", pid)
    assert (refused["kind"], refused["details"]["holder"]["process"]["pid"]) == ("busy", pid)
    found = only_object(out)
    assert (deploying.returncode, found["problem"]["kind"]) == (Status.INTERRUPTED, "interrupted")
    assert (found["release"], found["begun"][-1]) == (1, "start dsv4-server.service and prove it: it is new")
    assert "verdict" not in found
    assert "interrupted" in err
    after = command(machine, "status")
    assert (after.status, "at work" in after.stdout) == (Status.NOT_READY, False)
    behaviour(PORT, **QUICK)
    assert command(machine, "teardown", "--verify", timeout_s=PATIENCE_S).status == Status.OK


def test_a_deploy_that_fails_says_the_unit_and_what_it_came_from(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    command(machine, "deploy", "--port", str(PORT), timeout_s=PATIENCE_S)
    behaviour(PORT + 1, exit=2)

    done = command(machine, "deploy", "--port", str(PORT + 1), "--json", timeout_s=PATIENCE_S)

    problem = only_object(done.stdout)["problem"]
    assert (done.status, problem["kind"]) == (Status.REVERTED, "reverted")
    assert (problem["details"]["failed"], problem["details"]["serves"]) == (2, 1)
    because = problem["details"]["because"]
    assert (because["kind"], because["details"]["unit"]) == ("not ready", "dsv4-server.service")
    assert any("error: " in line for line in because["details"]["wrote"])
