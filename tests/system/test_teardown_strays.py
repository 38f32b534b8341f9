"""Engines that nobody deployed: found whatever they call themselves, ended whole, and nobody else with them."""

import json

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.strays import (
    QUICK,
    command,
    engines,
    everybody,
    held_bytes,
    listening,
    main_of,
    server_line,
    shell,
    tell,
    until,
)
from tests.system.test_teardown_gate import hold, pid_on

PREFILL = "--disaggregation-mode prefill --disaggregation-bootstrap-port 8998 --nccl-port 20031"
DECODE = "--disaggregation-mode decode --nccl-port 20032"


def test_the_seed_case_servers_by_hand_renamed_workers_mains_killed_teardown_from_the_same_shell(
    machine: Machine, behaviour: Behave
) -> None:
    """B12, B15, B17: a TP4 server and a PD pair; the shell's own arguments name the whole server command."""
    for port in (30000, 30001, 30002):
        behaviour(port, **QUICK, leave_renamed_children=2)
    lines = [
        server_line(30000, on=(0, 1, 2, 3)),
        server_line(30001, on=(4, 5), more=PREFILL),
        server_line(30002, on=(6, 7), more=DECODE),
    ]
    ours = shell(machine, "\n".join(f"{line} &" for line in lines))
    until(lambda: all(listening(machine, port) for port in (30000, 30001, 30002)))
    for port in (30000, 30001, 30002):
        machine.run(("kill", "-KILL", str(main_of(machine, port))), timeout_s=5)
    until(lambda: not listening(machine, 30000))
    assert held_bytes(machine) > 0

    said = tell(ours, "dsv4ctl teardown --verify --strays --gpus 0-7 2>&1; echo status=$?")

    assert "status=0" in said, said
    assert engines(machine) == {}
    assert held_bytes(machine) == 0
    assert ours.poll() is None
    assert tell(ours, "echo alive").strip() == "alive"


def test_a_running_server_by_hand_is_ended_through_its_port_with_all_of_its_tree(
    machine: Machine, behaviour: Behave
) -> None:
    """B15: any argv and comm; a bystander with sglang in its arguments survives."""
    behaviour(30001, **QUICK)
    bystander = machine.popen(("sh", "-c", "sleep 300; : python -m sglang.launch_server --port 30001"))
    ours = shell(machine, f"{server_line(30001)} &")
    until(lambda: listening(machine, 30001))

    done = command(machine, "teardown", "--verify", "--port", "30001")

    assert done.status == Status.OK, done.stderr
    assert "be ended" not in done.stdout
    assert engines(machine) == {}
    assert held_bytes(machine) == 0
    assert bystander.poll() is None
    assert ours.poll() is None


def test_a_server_that_is_deaf_to_sigterm_is_killed_after_its_grace(machine: Machine, behaviour: Behave) -> None:
    behaviour(30001, **QUICK, ignore_sigterm=True)
    shell(machine, f"{server_line(30001)} &")
    until(lambda: listening(machine, 30001))

    done = command(machine, "teardown", "--verify", "--port", "30001", "--grace", "1")

    assert done.status == Status.OK, done.stderr
    assert engines(machine) == {}


@pytest.mark.parametrize("number", ["KILL", "TERM"])
def test_orphans_of_the_import_window_are_found_by_strays(machine: Machine, behaviour: Behave, number: str) -> None:
    """B14: the main process dies while its children still import; they hold nothing and hang at the first process."""
    behaviour(30001, **(QUICK | {"import_s": 4.0}))
    shell(machine, f"setsid env {server_line(30001)} &")
    until(lambda: len(engines(machine)) >= 4)
    main = min(engines(machine))
    machine.run(("kill", f"-{number}", str(main)), timeout_s=5)
    until(lambda: main not in engines(machine))
    assert engines(machine)

    done = command(machine, "teardown", "--verify", "--strays")

    assert done.status == Status.OK, done.stderr
    assert engines(machine) == {}


def test_another_server_of_the_same_shell_survives_a_teardown_that_is_not_for_it(
    machine: Machine, behaviour: Behave
) -> None:
    for port in (30001, 30005):
        behaviour(port, **QUICK)
    shell(machine, f"{server_line(30001, on=(0, 1))} &\n{server_line(30005, on=(4, 5), more='--nccl-port 20055')} &")
    until(lambda: listening(machine, 30001) and listening(machine, 30005))
    other = main_of(machine, 30005)

    done = command(machine, "teardown", "--verify", "--port", "30001", "--gpus", "0-1")

    assert done.status == Status.OK, done.stderr
    assert listening(machine, 30005)
    assert main_of(machine, 30005) == other
    assert not listening(machine, 30001)


def test_deploy_ends_a_stray_engine_on_its_port_and_serves(machine: Machine, behaviour: Behave) -> None:
    behaviour(30001, **QUICK)
    shell(machine, f"{server_line(30001, on=(0, 1, 2, 3))} &")
    until(lambda: listening(machine, 30001))
    stray = main_of(machine, 30001)

    done = command(machine, "deploy", "--mode", "single-tp4", "--port", "30001")

    assert done.status == Status.OK, done.stderr
    assert f"end pid {stray} " in done.stderr
    assert stray not in everybody(machine)


def test_with_nothing_deployed_verify_looks_at_the_whole_host_and_ends_nobody(
    machine: Machine, behaviour: Behave
) -> None:
    """Nor does memory that is no engine's fail it, here of a program on GPU 7."""
    behaviour(30000, **QUICK)
    notebook = hold(machine, 7)
    shell(machine, f"{server_line(30000, on=(0, 1, 2, 3))} &")
    until(lambda: listening(machine, 30000))
    there = engines(machine)

    left = command(machine, "teardown", "--verify")
    shown = command(machine, "status")
    after = engines(machine)
    ended = command(machine, "teardown", "--strays", "--verify")
    clean = command(machine, "teardown", "--verify")

    assert left.status == Status.LEFT_OVER, left.stderr
    assert f"LEFT  stray: pid {min(there)} " in left.stdout
    assert "LEFT  memory of GPU 0: " in left.stdout
    assert f"stay  holder: not ours: pid {pid_on(machine, 7)} " in left.stdout
    assert "stay  memory of GPU 7: not ours: " in left.stdout
    assert f"engines that nobody deployed run: pid {min(there)} " in shown.stdout
    assert "try: dsv4ctl teardown --strays --verify" in left.stderr
    assert after == there
    assert ended.status == clean.status == Status.OK, ended.stderr
    assert "gone  memory of GPU 0: at its idle baseline" in clean.stdout
    assert notebook.poll() is None


def test_who_says_who_it_is_and_what_would_be_done(machine: Machine, behaviour: Behave) -> None:
    behaviour(30001, **QUICK)
    shell(machine, f"{server_line(30001)} &")
    until(lambda: listening(machine, 30001))
    pid = main_of(machine, 30001)

    said = command(machine, "who", "30001", "gpu:0", "gpu:7")
    values = json.loads(command(machine, "who", "30001", "--json").stdout)

    assert f"stray: pid {pid} (python" in said.stdout, said
    assert "it runs in the engine environment /opt/sglang" in said.stdout
    assert "login session 1" in said.stdout
    assert "GPU 0: " in said.stdout
    assert "GPU 7: idle" in said.stdout
    assert values["holders"][0]["pid"] == pid
    assert pid in everybody(machine)
