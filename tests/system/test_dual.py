"""Two whole servers behind the real router: each is proved, one may die, and what does not change goes on."""

import json
from pathlib import Path

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system import pairs
from tests.system.conftest import reset
from tests.system.deploying import QUICK, UNIT, inside, last_lines, processes_of_ours, prop, until
from tests.system.pairs import ROUTER, ask, engine, kill, prepare, probe, words

SERVERS = ("dsv4-server-0.service", "dsv4-server-1.service")
PORTS = (20002, 20012)
MODE = ("dual-tp4", "--gpus", "none")


def generations(machine: Machine, port: int) -> Path:
    """Where the server on this port tells which generations it was asked for."""
    return machine.root / f"run/standin/generations-{port}"


@pytest.fixture(scope="module", autouse=True)
def fresh(machine: Machine) -> None:
    """One deployed mode for all tests of this file, which follow each other."""
    reset(machine)
    prepare(machine, limits={"proof": "60s", "drain": "2s"})
    for port in PORTS:
        told = {"generations_to": f"/run/standin/generations-{port}"}
        machine.write(f"/run/standin/{port}.json", json.dumps(QUICK | told))


def pids(machine: Machine) -> dict[str, int]:
    return {unit: engine(machine, unit) for unit in (*SERVERS, ROUTER)}


def test_a_deploy_proves_both_servers_each_by_itself_and_through_the_router(machine: Machine) -> None:
    done = pairs.deploy(machine, *MODE)

    assert "ok: each of 2 servers answered itself and has counted one of" in done.stdout
    for port in PORTS:
        begun = [line for line in generations(machine, port).read_text().splitlines() if line.startswith("begin")]
        # Its supervisor's, the deploy's to the server itself, and one through the router at the least.
        assert len(begun) >= 3
    assert "ok: each of 2 servers answered itself" in probe(machine).stdout
    assert ask(machine)


@pytest.mark.parametrize("role", ["server", "server-0", "dsv4-server-1.service", "router"])
def test_every_command_that_knows_roles_takes_each_of_them(machine: Machine, role: str) -> None:
    meant = role.removeprefix("dsv4-").removesuffix(".service")
    units = [unit.removesuffix(".service") for unit in (*SERVERS, ROUTER) if unit.startswith(f"dsv4-{meant}")]
    shown = machine.run(("dsv4ctl", "status", "--role", role, "--json"), timeout_s=60, check=False)
    logged = machine.run(("dsv4ctl", "logs", "-n", "40", "--role", role), timeout_s=60)
    proved = probe(machine, "--role", role)
    planned = machine.run(("dsv4ctl", "teardown", "--dry-run", "--role", role), timeout_s=60)
    held = machine.run(("dsv4ctl", "who", "--role", role), timeout_s=60)

    assert [row["unit"] for row in json.loads(shown.stdout)["rows"]] == [f"{unit}.service" for unit in units]
    # systemd writes of the unit as well.
    assert {line.split()[1].partition("[")[0] for line in logged.stdout.splitlines()} - {"systemd"} == set(units)
    assert [line.split()[0] for line in proved.stdout.splitlines()[:-1]] == [f"{unit}.service" for unit in units]
    stops = [line.split()[2] for line in planned.stdout.splitlines() if ". stop dsv4-" in line]
    assert stops == [f"{unit}.service:" for unit in units]
    for unit in (*SERVERS, ROUTER):
        assert (f", {unit}, since" in held.stdout) == (unit.removesuffix(".service") in units)


@pytest.mark.parametrize("command", ["status", "logs", "probe", "teardown", "who"])
def test_a_role_that_is_not_there_is_a_wrong_option_and_told_which_there_are(machine: Machine, command: str) -> None:
    done = machine.run(("dsv4ctl", command, "--role", "decode"), timeout_s=60, check=False)

    assert done.status == Status.USAGE
    assert "cannot find decode: installed are server, server-0, server-1, router" in done.stderr


def test_a_server_that_is_stuck_is_named_however_the_router_hides_it(machine: Machine) -> None:
    scheduler = str(inside(machine, SERVERS[1])["scheduler"])
    machine.run(("kill", "-STOP", scheduler), timeout_s=5)
    said = probe(machine, "--limit", "5", check=False)
    machine.run(("kill", "-CONT", scheduler), timeout_s=5)

    assert said.status == Status.NOT_READY
    assert f"\nserver-1: {SERVERS[1]} itself: no answer within 5 s" in said.stdout
    assert f"systemctl restart {SERVERS[1]}" in said.stderr


def test_one_server_that_dies_takes_nobody_with_it_and_clients_are_answered_all_the_while(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORTS[1], **QUICK | {"load_s": 10.0, "generations_to": f"/run/standin/generations-{PORTS[1]}"})
    before = pids(machine)

    kill(machine, SERVERS[1])

    # The same question all the while: the router sends it to the server that has answered it before, dead or not.
    answers = [ask(machine) for _ in range(4)]
    until(lambda: "degraded: peer down (dsv4-server-1" in words(machine, ROUTER), lambda: words(machine, ROUTER))
    told = machine.run(("dsv4ctl", "status"), timeout_s=60, check=False)
    named = probe(machine, check=False)
    answers += [ask(machine) for _ in range(4)]
    until(lambda: "degraded" not in words(machine, ROUTER), lambda: last_lines(machine, SERVERS[1]), limit_s=120)
    after = pids(machine)
    assert all(answers)
    assert told.status == Status.NOT_READY
    assert "degraded: peer down (server-1)" in told.stdout, told.stdout
    assert "\nserver-1: cannot prove dsv4-server-1.service: " in named.stdout
    assert "; port 30001 answers all the same" in named.stdout
    assert {unit: after[unit] for unit in (SERVERS[0], ROUTER)} == {unit: before[unit] for unit in (SERVERS[0], ROUTER)}
    assert after[SERVERS[1]] != before[SERVERS[1]]
    # The router takes it for well when its second health check has passed, some time after its supervisor.
    until(lambda: probe(machine, check=False).status == Status.OK, lambda: last_lines(machine, ROUTER))
    assert "ok: each of 2 servers answered itself" in probe(machine).stdout


def test_only_the_router_is_started_anew_when_only_it_changes(machine: Machine) -> None:
    before = pids(machine)

    pairs.deploy(machine, *MODE, "--router-policy", "round_robin")

    after = pids(machine)
    assert {unit: after[unit] for unit in SERVERS} == {unit: before[unit] for unit in SERVERS}
    assert after[ROUTER] != before[ROUTER]


def test_a_switch_to_one_server_and_to_a_pair_and_back_leaves_nothing_of_the_mode_before(machine: Machine) -> None:
    stops = []
    for mode, there in (
        ("single-tp4", [UNIT]),
        ("pd", ["dsv4-decode.service", "dsv4-prefill.service", ROUTER]),
        ("dual-tp4", [ROUTER, *SERVERS]),
    ):
        done = pairs.deploy(machine, mode, "--gpus", "none")
        stops.append([line.split()[4].rstrip(":") for line in done.stderr.splitlines() if " stop dsv4-" in line])
        argv = ("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "dsv4-*.service")
        listed = machine.run(argv, timeout_s=20).stdout
        assert sorted(line.split()[0] for line in listed.splitlines()) == there
        assert ask(machine)
    assert stops == [[ROUTER, *SERVERS], [UNIT], [ROUTER, "dsv4-decode.service", "dsv4-prefill.service"]]


def test_a_teardown_stops_the_router_first_and_of_one_role_that_alone(machine: Machine) -> None:
    machine.run(("dsv4ctl", "teardown", "--role", "server-1"), timeout_s=120)
    assert [prop(machine, "ActiveState", unit) for unit in (*SERVERS, ROUTER)] == ["active", "inactive", "active"]
    assert ask(machine)

    gone = machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=120)

    stops = [line.split()[4].rstrip(":") for line in gone.stderr.splitlines() if " stop dsv4-" in line]
    assert stops == [ROUTER, SERVERS[0]]
    assert processes_of_ours(machine) == 0
