"""Faults of a host that changed hands: old connections, runners, unit settings, state lost, two at once, reloads."""

import json
import shutil

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE
from tests.conftest import Behave
from tests.system import pairs
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
    locked_by,
    processes_of_ours,
    prop,
    systemctl,
    until,
    wait_for_active,
    wait_for_state,
    wait_for_whole_tree,
    wait_for_words,
)

# A server that closes first, so that what is left of its connection is on its port; then it ends.
OLD_SERVER = f"""
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.argv[1]))
server.bind(("127.0.0.1", {PORT}))
server.listen()
client = socket.create_connection(("127.0.0.1", {PORT}))
accepted, _ = server.accept()
accepted.close()
client.recv(1)
"""


def old_server(machine: Machine, *, reuse: bool) -> str:
    """Let a server have been there; the states of what it left on its port."""
    forget(machine)
    machine.run(("python3", "-c", OLD_SERVER, str(int(reuse))), timeout_s=10)
    return machine.run(("ss", "-Htan", f"sport = :{PORT}"), timeout_s=10).stdout


def forget(machine: Machine) -> None:
    """Have the kernel let go of old connections now and not in 60 s; it does, and complains about the answer."""
    machine.run(("ss", "-K", "state", "time-wait", f"sport = :{PORT}"), timeout_s=10, check=False)


def drop_in(machine: Machine, text: str) -> None:
    """What `systemctl edit` would leave behind."""
    machine.write(f"/etc/systemd/system/{UNIT}.d/override.conf", text)
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)


def reloads(machine: Machine) -> int:
    """How often systemd has read its unit files since the test began."""
    return journal(machine, "_PID=1").count("Reloading.")


def test_time_wait_of_a_server_that_shared_its_address_delays_nothing(machine: Machine, behaviour: Behave) -> None:
    """B05: it had set SO_REUSEADDR, as the engine does."""
    behaviour(PORT, **QUICK)
    assert "TIME-WAIT" in old_server(machine, reuse=True)

    done = deploy(machine)

    assert "TIME_WAIT" not in done.stderr
    assert "end pid" not in done.stderr


def test_time_wait_of_a_server_that_did_not_share_its_address_is_waited_for_and_kills_nobody(
    machine: Machine, behaviour: Behave
) -> None:
    """B05: at most the kernel's own time; here the kernel is asked to let go sooner than in 60 s."""
    behaviour(PORT, **QUICK)
    assert "TIME-WAIT" in old_server(machine, reuse=False)
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))

    assert deploying.stderr is not None
    said = ""
    while f"waiting for port {PORT}: nobody has it, but ended connections of a server" not in said:
        line = deploying.stderr.readline()
        assert line, said
        said += line
    forget(machine)

    _, rest = deploying.communicate(timeout=90)
    assert deploying.returncode == Status.OK, said + rest
    assert "end pid" not in said + rest


def test_a_start_by_systemd_alone_waits_for_time_wait_as_well(machine: Machine, behaviour: Behave) -> None:
    """B05: a reboot or a crash finds old connections, too, and a port that frees itself is no reason to give up."""
    behaviour(PORT, **QUICK)
    install(machine)
    assert "TIME-WAIT" in old_server(machine, reuse=False)
    systemctl(machine, "start", "--no-block")

    wait_for_words(machine, "waiting for the kernel, at most ")
    assert f"s more: http port {PORT}: nobody has it, but ended connections of a server " in prop(machine, "StatusText")
    forget(machine)

    wait_for_active(machine)


def test_a_half_closed_connection_that_somebody_still_has_is_told_with_its_holder(machine: Machine) -> None:
    """B05: nobody listens any more, and one accepted connection is still open in a process that nobody asked about."""
    forget(machine)
    script = OLD_SERVER.replace("accepted.close()\nclient.recv(1)", "server.close(); print('up', flush=True); input()")
    holder = machine.popen(("python3", "-c", script, "0"))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"

    refused = deploy(machine, check=False)

    assert refused.status == Status.PORT_TAKEN
    assert "nobody listens, but pid " in refused.stderr
    assert "has it in use for a connection with 127.0.0.1:" in refused.stderr
    assert holder.poll() is None


def test_two_roles_that_share_a_port_are_both_named_before_anything_is_written(machine: Machine) -> None:
    """B02: every port of every role has a number of its own, also those that engines use among themselves."""
    pairs.prepare(machine)
    configure(machine, f"[transfer]\nbootstrap_port = {PORT}")
    text = (machine.root / "etc/dsv4ctl/config.toml").read_text().replace('[transfer]\nbackend = "nixl"\n', "")
    machine.write("/etc/dsv4ctl/config.toml", text)

    refused = pairs.deploy(machine, "pd", check=False)

    assert refused.status == Status.USAGE, refused
    assert f"{PORT}" in refused.stderr
    assert "prefill" in refused.stderr
    assert "router" in refused.stderr
    assert not list((machine.root / "etc/systemd/system").glob("dsv4-*"))


def test_a_record_whose_pid_belongs_to_somebody_else_by_now_gets_nobody_signalled(
    machine: Machine, behaviour: Behave
) -> None:
    """B18: after a crash or a reboot the numbers in our files name anybody."""
    behaviour(PORT, **QUICK)
    # A server of an earlier test may have left its port in TIME_WAIT, for a minute.
    deploy(machine, timeout_s=180)
    innocent = machine.popen(("sh", "-c", "echo $$; exec sleep 600"))
    assert innocent.stdout is not None
    pid = int(innocent.stdout.readline())
    systemctl(machine, "stop")
    file = machine.root / "run/dsv4ctl/server/state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": pid, "engine_pid": pid}))

    for words in (("teardown", "--verify"), ("deploy", "--port", str(PORT)), ("teardown", "--verify", "--strays")):
        done = machine.run(("dsv4ctl", *words), timeout_s=180, check=False)
        assert done.status == Status.OK, done
        assert str(pid) not in done.stdout + done.stderr
    assert innocent.poll() is None


@pytest.mark.parametrize("runner", ["uv", "bash", "nohup"])
def test_a_runner_is_no_interpreter(machine: Machine, runner: str) -> None:
    """B20: it does not pass every signal on, and the engine outlives it."""
    refused = deploy(machine, "--python", f"/usr/bin/{runner}", check=False)

    assert refused.status == Status.USAGE
    assert "no runner" in refused.stderr


RUNS = {
    "conda run": "/opt/conda/bin/conda run -n sglang python -m sglang.launch_server",
    "a shell": "/bin/bash -c 'python -m sglang.launch_server'",
}


def test_the_unit_starts_the_interpreter_itself_and_a_drop_in_with_a_runner_is_objected_to(
    machine: Machine, behaviour: Behave
) -> None:
    """B20: what is rendered names the environment's own python; every kind of runner is told."""
    behaviour(PORT, **QUICK)
    deploy(machine)
    engine = (machine.root / f"proc/{inside(machine)['engine']}/cmdline").read_text().split("\0")
    assert engine[:3] == [f"{ENGINE}/bin/python", "-m", "sglang.launch_server"]

    for how, command in RUNS.items():
        drop_in(machine, f"[Service]\nExecStart=\nExecStart={command}\n")
        said = machine.run(("dsv4ctl", "status"), timeout_s=60, check=False).stdout
        assert "runs the engine as its child" in said or "-c without exec" in said, how


@pytest.mark.parametrize("mode", ["process", "none"])
def test_a_unit_whose_stop_spares_workers_is_objected_to_and_its_leftovers_stop_the_start_once_with_a_list(
    machine: Machine, behaviour: Behave, mode: str
) -> None:
    """B21: systemd itself only says "ignoring", and each restart would fail the same way."""
    configure(machine, '[limits]\nrestart = "1s"')
    behaviour(PORT, **QUICK)
    deploy(machine)
    drop_in(machine, f"[Service]\nKillMode={mode}\n")
    assert (
        f"KillMode={mode}: the engine's workers would survive"
        in machine.run(("dsv4ctl", "status"), timeout_s=60, check=False).stdout
    )
    before = inside(machine)
    machine.run(("kill", "-KILL", str(before["supervisor"])), timeout_s=5)

    wait_for_state(machine, "failed")

    said = prop(machine, "StatusText")
    assert f" of an earlier run are left in {UNIT}: pid {before['engine']} (python, state " in said
    assert [prop(machine, name) for name in ("ExecMainStatus", "NRestarts")] == ["10", "1"]
    assert (machine.root / f"proc/{before['engine']}").exists()
    done = machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=90, check=False)
    assert done.status == Status.OK, done
    assert processes_of_ours(machine) == 0


def test_of_two_commands_at_once_one_is_busy_and_the_lock_dies_with_its_holder(
    machine: Machine, behaviour: Behave
) -> None:
    """B23: who holds it, with which command and since when; SIGKILL of the holder frees it."""
    behaviour(PORT, **(QUICK | {"load_s": 6.0}))
    first = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))
    wait_for_words(machine, "loading weights")
    holder = locked_by(machine)

    for words in (("deploy", "--port", str(PORT)), ("teardown", "--verify")):
        second = machine.run(("dsv4ctl", *words), timeout_s=60, check=False)
        assert second.status == Status.BUSY
        assert "holds the lock for deploy since 20" in second.stderr
        assert f"(pid {holder}: " in second.stderr
        assert f"deploy --mode single-tp4 --port {PORT}" in second.stderr
    machine.run(("kill", "-KILL", str(holder)), timeout_s=5)
    first.wait(timeout=10)
    before = prop(machine, "InvocationID")

    deploy(machine)

    assert prop(machine, "InvocationID") == before


def test_two_starts_by_systemd_and_deploy_at_once_make_one_server(machine: Machine, behaviour: Behave) -> None:
    """B23: whoever comes second finds the start under way; nobody kills the first one's engine."""
    behaviour(PORT, **(QUICK | {"load_s": 2.0}))
    deploy(machine)
    systemctl(machine, "stop")
    systemctl(machine, "start", "--no-block")
    wait_for_state(machine, "activating")
    before = prop(machine, "InvocationID")

    deploy(machine)

    assert prop(machine, "InvocationID") == before
    assert prop(machine, "NRestarts") == "0"


def test_state_that_was_deleted_is_read_from_the_host_and_no_second_generation_is_started(
    machine: Machine, behaviour: Behave
) -> None:
    """B24: truth is what runs; status shows it, and a deploy of the same does nothing to it."""
    behaviour(PORT, **QUICK)
    deploy(machine)
    before = (prop(machine, "InvocationID"), inside(machine))
    for folder in ("var/lib/dsv4ctl", "run/dsv4ctl"):
        shutil.rmtree(machine.root / folder)

    shown = machine.run(("dsv4ctl", "status"), timeout_s=30, check=False).stdout
    again = deploy(machine)

    assert "dsv4-server  server  active" in shown
    assert f"start {UNIT}" not in again.stderr
    assert f"stop {UNIT}" not in again.stderr
    assert (prop(machine, "InvocationID"), inside(machine)) == before
    wait_for_whole_tree(machine)
    assert deploy(machine).stdout.startswith("nothing to do")
    assert machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=90).status == Status.OK


def test_systemd_reads_its_units_anew_only_when_their_text_changed(machine: Machine, behaviour: Behave) -> None:
    """B36: a reload makes running GPU containers lose their GPUs."""
    behaviour(PORT, **QUICK)
    deploy(machine)
    first = reloads(machine)
    assert first > 0

    deploy(machine)
    machine.run(("dsv4ctl", "plan", "--mode", "single-tp4", "--port", str(PORT)), timeout_s=30)
    machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=90)
    deploy(machine)
    assert reloads(machine) == first

    configure(machine, '[engine.environment]\nSGLANG_SWITCH = "1"')
    deploy(machine)
    assert reloads(machine) == first + 1


def test_the_death_of_a_main_process_with_children_is_followed_by_a_restart(
    machine: Machine, behaviour: Behave
) -> None:
    """B51: no ring of Requires=, BindsTo= and PartOf= turns the crash into a stop; the target stays up."""
    configure(machine, '[limits]\nrestart = "1s"')
    behaviour(PORT, **QUICK)
    deploy(machine)
    before = inside(machine)

    machine.run(("kill", "-KILL", str(before["supervisor"])), timeout_s=5)
    until(lambda: prop(machine, "NRestarts") == "1", lambda: last_lines(machine))
    wait_for_active(machine)

    assert not {*inside(machine).values()} & {*before.values()}
    target = machine.run(("systemctl", "is-active", "dsv4.target"), timeout_s=10, check=False).stdout.strip()
    assert target == "active"
