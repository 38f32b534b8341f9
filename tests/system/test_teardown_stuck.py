"""Processes that outlive SIGKILL in uninterruptible sleep: waited for and told, and never taken for gone."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    RENDEZVOUS,
    UNIT,
    configure,
    deploy,
    install,
    processes_of_ours,
    prop,
    systemctl,
    wait_for_words,
)
from tests.system.strays import Driver, command, engines, everybody, hear, until

Release = Callable[[], None]
NEVER, CLOSES_NEVER = "/mnt/never/file", "/mnt/never/closes-never"
# A stray that holds an internal port and a GPU's device, and asks what is never answered.
STRAY = f"""
import os, socket, sys, threading, time
closes = os.open("{CLOSES_NEVER}", os.O_RDONLY) if sys.argv[1] == "close" else None
import sglang.standin
server = socket.create_server(("127.0.0.1", {RENDEZVOUS}))
node = open("/dev/nvidia2")
open("/run/standin-gpus/{gpus.uuid(2)}/" + str(os.getpid()), "w").write(str(10 * 2**30))
print(os.getpid(), flush=True)
if sys.argv[1] == "main":
    os.stat("{NEVER}")
if sys.argv[1] == "thread":
    threading.Thread(target=os.stat, args=("{NEVER}",)).start()
time.sleep(600)
"""


@pytest.fixture
def release(machine: Machine) -> Iterator[Release]:
    """A file system in the machine that never answers; calling it lets go of whoever is stuck on it."""
    if "fuse" not in Path("/proc/filesystems").read_text().split():
        pytest.skip("this kernel has no FUSE, with which a process is put into uninterruptible sleep")
    machine.write("/opt/stuck.py", Path(__file__).with_name("stuck.py").read_text())
    server = machine.popen((sys.executable, "-P", "/opt/stuck.py", str(Path(NEVER).parent)))
    assert server.stdout is not None
    pid = server.stdout.readline().strip()
    assert pid, server.communicate()

    def let_go() -> None:
        machine.run(("kill", "-KILL", pid), timeout_s=5, check=False)
        server.wait(timeout=10)

    yield let_go
    let_go()
    machine.run(("umount", "--lazy", str(Path(NEVER).parent)), timeout_s=10, check=False)


def stuck(machine: Machine, where: str) -> int:
    """A stray whose main thread, or another one, is stuck."""
    stray = machine.popen((ENGINE / "bin/python", "-c", STRAY, where))
    assert stray.stdout is not None
    return int(stray.stdout.readline())


def waits_and_serves(machine: Machine, words: str, release: Release) -> None:
    """A deploy says so, starts nothing meanwhile, and serves when the holder is gone."""
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))
    said = hear(deploying, words)
    assert prop(machine, "ActiveState") in ("", "inactive")
    release()
    _, rest = deploying.communicate(timeout=60)
    assert deploying.returncode == Status.OK, said + rest


@pytest.mark.parametrize("where", ["main", "thread", "close"])
def test_a_port_that_is_held_after_the_kill_is_told_and_refused_and_free_when_its_holder_is_gone(
    machine: Machine, behaviour: Behave, release: Release, where: str
) -> None:
    """B01: an internal port, held in state D; a teardown fails at its own bound, and no start goes ahead."""
    behaviour(PORT, **QUICK)
    install(machine)
    pid = stuck(machine, where)

    failed = command(machine, "teardown", "--verify", "--grace", "0.2", "--timeout", "3")

    assert failed.status == Status.LEFT_OVER, failed.stderr
    assert f"killed, 1 left: pid {pid} (python, state D in " in failed.stderr
    assert "gone  memory of GPU 0: at its idle baseline" in failed.stdout
    assert f"LEFT  stray: pid {pid} (python" in failed.stdout
    assert f"LEFT  port {RENDEZVOUS}: " in failed.stdout
    (line,) = (line for line in failed.stderr.splitlines() if "cannot end 1 process" in line)
    assert f"pid {pid} (python, user root, " in line
    gpu = "its tree holds 10.0 GiB of GPU 2 when it was found" if where == "close" else "has nvidia2 open"
    assert f"is in state D in request_wait_answer, listens on port {RENDEZVOUS}, {gpu}" in line

    refused = systemctl(machine, "start", check=False)
    assert refused.status != 0
    assert f"rendezvous port {RENDEZVOUS} is taken" in prop(machine, "StatusText")
    assert f"stray: pid {pid} (python" in command(machine, "who", str(RENDEZVOUS)).stdout

    release()
    until(lambda: not engines(machine))
    assert command(machine, "teardown", "--verify").status == Status.OK
    assert pid not in everybody(machine)


def test_one_whose_files_never_close_is_known_by_what_it_holds_although_nothing_of_it_can_be_looked_into(
    machine: Machine, behaviour: Behave, release: Release
) -> None:
    """B01: killed by hand. Its memory, executable and list of files are gone, its port is not, and who comes is new."""
    behaviour(PORT, **QUICK)
    pid = stuck(machine, "close")
    machine.run(("kill", "-KILL", str(pid)), timeout_s=5)
    until(lambda: not machine.run(("ls", f"/proc/{pid}/fd"), timeout_s=5).stdout)

    who = command(machine, "who", str(RENDEZVOUS), "gpu:2").stdout
    assert f"stray: pid {pid} (python, user root, " in who
    assert f"listens on 127.0.0.1:{RENDEZVOUS}: it is on its way out" in who
    assert "it would be waited for" in who
    assert f"GPU 2: 10.0 GiB in use; pid {pid} (python) is on its way out" in who

    failed = command(machine, "teardown", "--verify", "--port", str(RENDEZVOUS), "--timeout", "1")
    assert failed.status == Status.LEFT_OVER, failed.stderr
    assert f"wait for the end of pid {pid} (python" in failed.stderr
    assert f"is in state D in request_wait_answer, listens on port {RENDEZVOUS}" in failed.stderr

    waits_and_serves(machine, f"wait for the end of pid {pid} (python", release)


def test_a_deploy_waits_for_a_killed_holder_that_goes_late_and_then_serves(
    machine: Machine, behaviour: Behave, release: Release
) -> None:
    """B01: no success is claimed right after SIGKILL without looking again."""
    behaviour(PORT, **QUICK)
    pid = stuck(machine, "main")

    waits_and_serves(machine, f"killed, 1 left: pid {pid} (python, state D in ", release)

    assert pid not in everybody(machine)


def test_a_rank_of_our_own_that_outlives_its_kill_is_told_and_waited_for(
    machine: Machine, behaviour: Behave, release: Release
) -> None:
    """B01: in a unit it is the supervisor that kills, looks again and says for whom it waits."""
    configure(machine, '[limits]\ndrain = "1s"\nengine_stop = "1s"')
    behaviour(PORT, **QUICK, stuck_on=NEVER)
    deploy(machine)
    ending = machine.popen(("dsv4ctl", "teardown", "--verify"))

    wait_for_words(machine, "killed, and not gone yet: pid ")
    words = prop(machine, "StatusText")
    assert "state D in request_wait_answer" in words
    assert prop(machine, "ActiveState") == "deactivating"
    assert ending.poll() is None
    release()

    said, _ = ending.communicate(timeout=60)
    assert ending.returncode == Status.OK, said
    assert f"gone  port {RENDEZVOUS}: free on both families" in said
    assert f"gone  processes of {UNIT}" in said
    assert processes_of_ours(machine) == 0


def test_a_gpu_query_that_cannot_be_ended_has_no_second_one_beside_it(
    machine: Machine, driver: Driver, release: Release
) -> None:
    """B34: at most one outstanding, of all commands together; each says that it hangs and goes on with all else."""
    # As the program itself, it comes up beside others, and is in the driver when it is told to.
    driver(f"#!/bin/sh\nread _ || exit 1\nexec cat {NEVER}\n")

    asking = [machine.popen(("dsv4ctl", "who", str(PORT), "gpu:0")) for _ in range(2)]
    said = "".join(one.communicate(timeout=60)[1] for one in asking)

    assert "GPU query hung for 10 s and cannot be ended" in said
    assert "GPU query hung: one that began more than 12 s ago has not come back" in said
    assert list(everybody(machine).values()).count("cat") == 1
    release()
    until(lambda: "cat" not in everybody(machine).values())


STRANGER = """
import signal, sys
from dsv4ctl import catch, census, pidfd, procs, systemd
from dsv4ctl.blame import Tree
stray, innocent = map(int, sys.argv[1:])
scope, asked = "dsv4ctl-ends-test-0.scope", frozenset((stray, innocent))
mine, other = procs.identity(stray), procs.identity(innocent)
home = procs.cgroup_of(innocent)
root = census.everything()[stray]
net = catch.Net(Tree(root=root, members=(mine,), unit="", holds=(), signs=()), made={scope: asked}, known={mine})

systemd.adopt(scope, sorted(asked), description="a pid that passed to a stranger between look and move")
assert procs.cgroup_of(innocent) == procs.cgroup_of(stray) != home
net.close()
assert procs.cgroup_of(innocent) == home
assert procs.alive(mine) and procs.cgroup_of(stray).endswith(scope), "a scope with somebody in it was stopped"
pidfd.signal(mine, signal.SIGKILL)
while procs.alive(mine):
    pass
net.close()
assert systemd.show((scope,))[scope].active == "inactive"
assert procs.alive(other)
print("spared")
"""


def test_a_stranger_that_systemd_moved_by_his_number_goes_back_and_no_scope_with_anybody_in_it_is_stopped(
    machine: Machine,
) -> None:
    shells = [machine.popen(("sh", "-c", "sleep 600 & echo $!; wait")) for _ in range(2)]
    pids = [shell.stdout.readline().strip() for shell in shells if shell.stdout is not None]

    done = machine.run((sys.executable, "-P", "-c", STRANGER, *pids), timeout_s=60, check=False)

    assert done.stdout == "spared\n", done.stderr
    assert int(pids[1]) in everybody(machine)
