"""What people did to a host between two commands, and what the next command makes of it."""

import time

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, UNIT, deploy, inside, processes_of_ours, prop, systemctl

UNITS = "/etc/systemd/system"


@pytest.fixture
def served(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)


def teardown(machine: Machine, *words: str) -> int:
    return machine.run(("dsv4ctl", "teardown", *words), timeout_s=90, check=False).status


@pytest.mark.usefixtures("served")
def test_an_engine_that_was_started_from_an_edited_unit_is_started_anew(machine: Machine) -> None:
    file = machine.root / f"etc/systemd/system/{UNIT}"
    file.write_text(file.read_text().replace("--tp-size 4", "--tp-size 4 --max-running-requests 7"))
    machine.run(("systemctl", "daemon-reload"), timeout_s=20)
    systemctl(machine, "restart")
    before = prop(machine, "InvocationID")

    done = deploy(machine)

    assert "a unit that somebody had edited" in done.stderr
    assert prop(machine, "InvocationID") != before
    assert deploy(machine).stdout.startswith("nothing to do")


@pytest.mark.usefixtures("served")
def test_a_service_that_is_only_named_like_ours_is_left_alone(machine: Machine) -> None:
    machine.write(f"{UNITS}/dsv4-exporter.service", "[Service]\nExecStart=/bin/sleep 5000\n")
    machine.run(("systemctl", "daemon-reload"), timeout_s=20)
    machine.run(("systemctl", "start", "dsv4-exporter"), timeout_s=20)

    deploy(machine)
    assert teardown(machine, "--verify", "--purge") == Status.OK

    assert machine.run(("systemctl", "is-active", "dsv4-exporter"), timeout_s=10).stdout.strip() == "active"
    assert (machine.root / "etc/systemd/system/dsv4-exporter.service").exists()


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("words", [("--gpus", "7-4"), ("--gpus", ""), ("--gpus", ",,"), ("--gpus", "0-999999999")])
def test_a_list_of_gpus_that_is_none_stops_nobody(machine: Machine, words: tuple[str, ...]) -> None:
    assert teardown(machine, *words) == Status.USAGE
    assert prop(machine, "ActiveState") == "active"


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("command", ["deploy", "teardown"])
def test_another_root_never_acts_on_the_units_of_this_one(machine: Machine, command: str) -> None:
    before = prop(machine, "InvocationID")

    done = machine.run(
        ("dsv4ctl", command, "--root", "/srv/other", *(DEPLOYS if command == "deploy" else ())),
        timeout_s=60, check=False,
    )  # fmt: skip

    assert done.status == Status.HOST
    assert "--root" in done.stderr
    assert prop(machine, "InvocationID") == before


DEPLOYS = ("--venv", "/opt/sglang", "--model", "/models/DeepSeek-V4-Flash", "--port", "30005")
DAMAGE = {
    "truncated": "printf '{' > $1",
    "binary": "printf '\\377\\376\\001' > $1",
    "a folder": "rm $1; mkdir $1",
    "gone": "rm $1",
}


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_instance_file_is_named_and_blocks_no_teardown(machine: Machine, damage: str) -> None:
    file = next((machine.root / "var/lib/dsv4ctl/instances").iterdir()).name
    machine.run(("sh", "-c", DAMAGE[damage], "sh", f"/var/lib/dsv4ctl/instances/{file}"), timeout_s=10)

    shown = machine.run(("dsv4ctl", "status"), timeout_s=20, check=False).stdout
    probed = machine.run(("dsv4ctl", "probe"), timeout_s=20, check=False)
    done = machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=90, check=False)

    assert file in shown
    assert (probed.status, file in probed.stderr) == (Status.NOT_READY, True)
    assert done.status == Status.LEFT_OVER
    assert file in done.stderr
    assert processes_of_ours(machine) == 0
    assert teardown(machine, "--purge") == Status.OK


@pytest.mark.usefixtures("served")
def test_a_unit_that_is_started_again_while_it_is_stopped_is_said_so(machine: Machine) -> None:
    ending = machine.popen(("dsv4ctl", "teardown"))
    while prop(machine, "ActiveState") != "deactivating":
        time.sleep(0.02)
    systemctl(machine, "start", "--no-block")

    _, said = ending.communicate(timeout=60)

    assert ending.returncode == Status.NOT_READY
    assert "starts it again" in said


def test_a_stranger_on_another_address_of_the_port_costs_nobody_the_deploy(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    program = f"import socket, time; s = socket.create_server(('127.0.0.2', {PORT})); print('up'); time.sleep(600)"
    stranger = machine.popen(("python3", "-u", "-c", program))
    assert stranger.stdout is not None
    stranger.stdout.readline()

    assert deploy(machine).status == Status.OK


def test_the_file_with_the_key_lives_no_longer_than_the_engine(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    machine.write("/etc/dsv4ctl/key", "sk-secret\n", mode=0o600)
    deploy(machine, "--api-key-file", "/etc/dsv4ctl/key")
    secrets = machine.root / "run/dsv4ctl/server/secrets.yaml"
    assert secrets.exists()

    teardown(machine)

    assert not secrets.exists()


def test_a_secret_in_a_file_of_its_own_reaches_the_engine_and_nobody_else(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    machine.write("/etc/dsv4ctl/engine.env", "HF_TOKEN=hf_secret\n", mode=0o600)
    machine.write(
        f"{UNITS}/{UNIT}.d/override.conf", "[Service]\nEnvironmentFile=-/etc/dsv4ctl/engine.env\n"
    )  # what `systemctl edit` writes

    assert deploy(machine).status == Status.OK

    assert "HF_TOKEN=hf_secret" in (machine.root / f"proc/{inside(machine)['engine']}/environ").read_text()
    assert "hf_secret" not in machine.run(("systemctl", "show", UNIT), timeout_s=10).stdout


def test_nobody_listening_ends_neither_a_deploy_nor_a_teardown(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    # A reader that ends first, and no terminal: what is left of `ssh HOST dsv4ctl deploy` when the network goes.
    unheard = f"dsv4ctl deploy --mode single-tp4 --port {PORT} > >(exec true) 2>&1"
    assert machine.run(("bash", "-c", unheard), timeout_s=60, check=False).status == Status.OK
    assert prop(machine, "ActiveState") == "active"

    closed = machine.run(("sh", "-c", "dsv4ctl teardown --verify >&- 2>&-"), timeout_s=60, check=False)
    assert (closed.status, processes_of_ours(machine)) == (Status.OK, 0)
