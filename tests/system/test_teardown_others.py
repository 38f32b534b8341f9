"""Other people's processes on a port that is wanted: named, refused, and alive afterwards; ended only by name."""

import json
import subprocess
import sys

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE
from tests.conftest import Behave
from tests.system.deploying import PORT, UNIT, configure, inside, install, journal, prop, systemctl
from tests.system.strays import QUICK, command, engines, everybody, listening, main_of, until

SHM = "/dev/shm"  # noqa: S108 -- the private machine's
DEPLOY = ("deploy", "--mode", "single-tp4", "--port", str(PORT))
TEARDOWN = ("teardown", "--verify", "--port", str(PORT))
SERVE = """
import socket, sys, time
if len(sys.argv) > 2:
    open("/proc/self/comm", "w").write(sys.argv[2])
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
print("up", flush=True)
time.sleep(600)
"""
# A stray: it runs in the engine's environment, whatever it calls itself.
STRAY = f"import sglang.standin\n{SERVE}"
# Each process forks on and on, ends as soon as it has, and does not heed SIGTERM.
STORM = f"""
import signal, os, sys, time
os.setsid() if os.getpid() != os.getsid(0) else None
signal.signal(signal.SIGTERM, signal.SIG_IGN)
import sglang.standin
import socket
server = socket.create_server(("127.0.0.1", {PORT}))
print("up", flush=True)
null = os.open("/dev/null", os.O_RDWR)
for stream in range(3):
    os.dup2(null, stream)
for _ in range(3):
    if not os.fork():
        break
while True:
    if os.fork():
        time.sleep(float(sys.argv[1]))
        os._exit(0)
"""


def serve(machine: Machine, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    process = machine.popen((*before, "python3", "-c", SERVE, str(PORT), *words))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def service(machine: Machine, unit: str, python: str, script: str) -> None:
    machine.write("/opt/serve.py", script)
    run = ("systemd-run", f"--unit={unit}", "-p", "Restart=always") if unit else ("systemd-run",)
    machine.run((*run, python, "/opt/serve.py", str(PORT)), timeout_s=20)
    until(lambda: listening(machine, PORT))


def test_an_installed_web_server_is_refused_by_name_and_stopped_through_systemd_when_evicted(
    machine: Machine, behaviour: Behave
) -> None:
    """It restarts by itself, so a signal behind systemd's back would bring it back."""
    behaviour(PORT, **QUICK)
    service(machine, "nginx.service", sys.executable, SERVE)
    pid = main_of(machine, PORT)

    for words in (DEPLOY, TEARDOWN):
        refused = command(machine, *words)
        assert refused.status in (Status.PORT_TAKEN, Status.FOREIGN)
        assert "nginx.service" in refused.stderr
        assert f"pid {pid} (python3, user root" in refused.stderr
        assert "systemctl stop nginx.service" in refused.stderr
    assert main_of(machine, PORT) == pid

    planned = command(machine, "plan", *DEPLOY[1:], "--evict", str(pid))
    assert planned.status == Status.CHANGES, planned.stderr
    assert f"end pid {pid} (python3, user root, nginx.service" in planned.stdout
    assert main_of(machine, PORT) == pid
    served = command(machine, *DEPLOY, "--evict", str(pid))
    assert served.status == Status.OK, served.stderr
    state = machine.run(("systemctl", "is-active", "nginx.service"), timeout_s=10, check=False).stdout.strip()
    assert state != "active"
    assert pid not in everybody(machine)


@pytest.mark.parametrize("name", ["docker-proxy", "rootlessport", "sshd", "systemd"])
def test_a_container_proxy_or_a_pillar_of_the_host_is_never_ended_not_even_by_name(machine: Machine, name: str) -> None:
    """B09: docker-proxy killed means a container without its published port."""
    proxy = serve(machine, name)
    pid = main_of(machine, PORT)

    for words in ((*TEARDOWN, "--strays"), (*TEARDOWN, "--evict", str(pid)), (*DEPLOY, "--evict", str(pid))):
        refused = command(machine, *words)
        assert refused.status in (Status.PORT_TAKEN, Status.FOREIGN), refused
        assert f"pid {pid} ({name}, " in refused.stderr
        assert ("cannot evict pid" in refused.stderr) == ("--evict" in words)
    assert proxy.poll() is None


@pytest.mark.parametrize("kind", ["--pid", "--net"])
def test_whoever_lives_in_another_namespace_is_never_ended(machine: Machine, kind: str) -> None:
    inside = (str(ENGINE / "bin/python"), "-c", STRAY, str(PORT))
    stray = machine.popen(("unshare", kind, "--fork", *inside))
    assert stray.stdout is not None
    # Without a loopback device of its own that is up nobody can bind there; the process is there all the same.
    until(lambda: stray.poll() is not None or engines(machine))

    command(machine, *TEARDOWN, "--strays", "--grace", "1")

    assert kind == "--net" or "another pid namespace" in command(machine, "who", str(PORT)).stdout
    assert engines(machine) or stray.poll() is not None


def test_a_web_server_of_the_engines_own_environment_is_named_and_ended_only_when_evict_names_it(
    machine: Machine,
) -> None:
    """Its interpreter is the engine's, and nothing that it has loaded is; nor is a prompt beside it touched."""
    python = str(ENGINE / "bin/python")
    web = machine.popen((python, "-m", "http.server", str(PORT), "--bind", "127.0.0.1"))
    prompt = machine.popen((python, "-ic", "print('up', flush=True)"))
    until(lambda: listening(machine, PORT))
    pid = main_of(machine, PORT)

    refused = command(machine, *TEARDOWN)
    who = command(machine, "who", str(PORT)).stdout
    assert refused.status == Status.FOREIGN, refused
    assert f"foreign: pid {pid} (python" in who
    assert f"--evict {pid}" in who
    assert web.poll() is None

    ended = command(machine, *TEARDOWN, "--evict", str(pid))
    assert ended.status == Status.OK, ended
    assert pid not in everybody(machine)
    assert prompt.poll() is None


def test_a_client_of_the_port_is_no_holder_and_survives(machine: Machine, behaviour: Behave) -> None:
    """B09, B04: only sockets in LISTEN yield anybody."""
    behaviour(PORT, **QUICK)
    stray = machine.popen((ENGINE / "bin/python", "-c", STRAY, str(PORT)))
    assert stray.stdout is not None
    stray.stdout.readline()
    client = machine.popen(
        (
            "python3",
            "-c",
            f"import socket; s=socket.create_connection(('127.0.0.1',{PORT})); print('up',flush=True); input()",
        )
    )
    assert client.stdout is not None
    client.stdout.readline()

    done = command(machine, *TEARDOWN)

    assert done.status == Status.OK, done.stderr
    assert stray.wait(timeout=5) is not None
    assert client.poll() is None


def test_an_outgoing_connection_from_the_port_kills_nobody_and_is_told(machine: Machine) -> None:
    """B04: nobody listens, and yet the port cannot be bound."""
    script = """
import socket, sys
server = socket.create_server(("127.0.0.1", 40000))
client = socket.socket(); client.bind(("127.0.0.1", 30011)); client.connect(("127.0.0.1", 40000))
print("up", flush=True); sys.stdin.read()
"""
    other = machine.popen(("python3", "-c", script))
    assert other.stdout is not None
    other.stdout.readline()

    done = command(machine, "teardown", "--verify", "--port", "30011", "--timeout", "1")

    assert done.status == Status.PORT_TAKEN, done
    assert "nobody listens, but pid " in done.stdout
    assert other.poll() is None


def test_an_engine_that_systemd_run_started_is_ended_through_its_unit(machine: Machine) -> None:
    service(machine, "", str(ENGINE / "bin/python"), STRAY)

    done = command(machine, *TEARDOWN)

    assert done.status == Status.OK, done.stderr
    assert ", by its unit run-" in done.stderr
    assert engines(machine) == {}


@pytest.mark.parametrize("life_s", ["0.005", "0.001"])
def test_a_fork_storm_that_ignores_sigterm_ends(machine: Machine, life_s: str) -> None:
    """Nobody whom a look finds on the port is there any more when it ends."""
    storm = machine.popen((ENGINE / "bin/python", "-c", STORM, life_s))
    assert storm.stdout is not None
    storm.stdout.readline()

    done = command(machine, *TEARDOWN, "--grace", "0.5")

    assert done.status == Status.OK, done.stderr
    assert engines(machine) == {}
    scopes = machine.run(("systemctl", "list-units", "--plain", "--no-legend", "dsv4ctl-ends-*"), timeout_s=10).stdout
    assert scopes == ""


def test_leftovers_of_the_dead_in_shared_memory_go_before_a_start_and_foreign_ones_never(
    machine: Machine, behaviour: Behave
) -> None:
    """B69: one crash leaves segments; each restart dies for lack of space."""
    behaviour(PORT, **QUICK)
    ours, theirs = f"{SHM}/sgl_shm_mq_999999_0", f"{SHM}/sgl_shm_mq_999998_0"
    for path in (ours, theirs, f"{SHM}/postgres.1"):
        machine.run(("sh", "-c", f"head -c 8192 /dev/zero >{path}"), timeout_s=5)
    machine.run(("chown", "1000", theirs), timeout_s=5)

    done = command(machine, *DEPLOY)

    assert done.status == Status.OK, done.stderr
    assert f"remove {ours}: " in done.stderr
    left = machine.run(("ls", SHM), timeout_s=5).stdout.split()
    assert "sgl_shm_mq_999999_0" not in left
    assert {"sgl_shm_mq_999998_0", "postgres.1"} <= set(left)
    machine.run(("rm", theirs, f"{SHM}/postgres.1"), timeout_s=5)


def test_a_restart_after_a_crash_removes_leftovers_and_says_so(machine: Machine, behaviour: Behave) -> None:
    """B69: without any command of ours; the unit's sandbox hides neither /dev/shm nor who uses it."""
    configure(machine, '[limits]\nrestart = "1s"')
    behaviour(PORT, **QUICK)
    assert command(machine, *DEPLOY).status == Status.OK
    engine = inside(machine)["engine"]
    assert (machine.root / f"proc/{engine}/root{SHM}").stat().st_dev == (machine.root / SHM[1:]).stat().st_dev
    ours, theirs, used = (f"{SHM}/sgl_shm_mq_{pid}_0" for pid in (999999, 999998, 999997))
    machine.run(("sh", "-c", f"for f in {ours} {theirs} {used}; do echo x >$f; done; chown 1000 {theirs}"), timeout_s=5)
    holder = machine.popen(("sh", "-c", f"exec 9<{used}; echo up; sleep 600"))
    assert holder.stdout is not None
    holder.stdout.readline()

    machine.run(("kill", "-KILL", str(engine)), timeout_s=5)
    until(lambda: prop(machine, "NRestarts") == "1" and prop(machine, "ActiveState") == "active")

    said = journal(machine, "-u", UNIT)
    assert f"removed {ours}: 0.0 MiB; the process that made it is dead, and nobody uses it" in said
    assert f"removed {theirs}" not in said
    left = machine.run(("ls", SHM), timeout_s=5).stdout.split()
    machine.run(("rm", theirs, used), timeout_s=5)
    assert {theirs.rpartition("/")[2], used.rpartition("/")[2]} <= set(left)
    assert ours.rpartition("/")[2] not in left


def test_a_start_is_refused_once_when_shared_memory_is_too_full(machine: Machine, behaviour: Behave) -> None:
    """B69: by a deploy before anything is touched, and by the unit itself; who has the most there is named."""
    behaviour(PORT, **QUICK)
    install(machine)
    full = f"mount -o remount,size=100m {SHM}; head -c 60m /dev/zero >{SHM}/somebodys; chown 54321 {SHM}/somebodys"
    before = machine.run(("findmnt", "-nbo", "SIZE", SHM), timeout_s=5).stdout.strip()
    machine.run(("sh", "-ec", full), timeout_s=10)
    words = "left in /dev/shm, and 192.0 MiB are needed for what processes of an engine share; user 54321 has 60.0 MiB"
    try:
        refused = command(machine, *DEPLOY)
        start = systemctl(machine, "start", check=False)
    finally:
        machine.run(("sh", "-ec", f"rm {SHM}/somebodys; mount -o remount,size={before} {SHM}"), timeout_s=10)

    assert refused.status == Status.HOST
    assert words in refused.stderr
    assert f"the largest file is {SHM}/somebodys" in refused.stderr
    assert start.status != 0
    assert words in prop(machine, "StatusText")
    assert [prop(machine, name) for name in ("ExecMainStatus", "NRestarts")] == ["10", "0"]


def test_a_dry_run_says_what_would_be_ended_and_ends_nobody(machine: Machine) -> None:
    stray = machine.popen((ENGINE / "bin/python", "-c", STRAY, str(PORT)))
    assert stray.stdout is not None
    stray.stdout.readline()

    shown = command(machine, *TEARDOWN, "--dry-run")
    values = json.loads(command(machine, *TEARDOWN, "--dry-run", "--json").stdout)

    assert f"end pid {main_of(machine, PORT)} " in shown.stdout
    assert len(values["steps"]) == 1
    assert stray.poll() is None
