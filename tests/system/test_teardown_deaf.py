"""A stray that runs inside the kernel and is deaf to SIGKILL: told, waited for, and no start on what it holds."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, RENDEZVOUS, install, prop, systemctl
from tests.system.strays import command, everybody, hear, held_bytes, until

# It takes a processor while it is there.
pytestmark = pytest.mark.alone

ANSWERS = "/run/deaf-answers"
# It holds an internal port, memory of a GPU and that GPU's device, and does not come back from the kernel.
STRAY = f"""
import os, socket, sys, threading
sys.path.insert(0, "/opt")
import deaf
import sglang.standin
server = socket.create_server(("127.0.0.1", {RENDEZVOUS}))
node = open("/dev/nvidia2")
open("/run/standin-gpus/{gpus.uuid(2)}/" + str(os.getpid()), "w").write(str(10 * 2**30))
call = deaf.prepare("{ANSWERS}")
print(os.getpid(), flush=True)
if sys.argv[1] == "main":
    deaf.libc.mincore(*call)
threading.Thread(target=deaf.libc.mincore, args=call).start()
threading.Event().wait()
"""


@dataclass(frozen=True)
class Deaf:
    """A deaf stray by its pid, and the file that its call ends with."""

    pid: int
    answers: Path

    def let_go(self) -> None:
        """Have the call end, and the stray with it, if it was killed."""
        if self.answers.exists():
            self.answers.write_bytes(b"")


@pytest.fixture
def deaf(machine: Machine, request: pytest.FixtureRequest) -> Iterator[Deaf]:
    """A stray whose main thread, or another one, is inside a call that looks at no signal."""
    machine.write("/opt/deaf.py", Path(__file__).with_name("deaf.py").read_text())
    stray = machine.popen((ENGINE / "bin/python", "-c", STRAY, request.param))
    assert stray.stdout is not None
    pid, answers = stray.stdout.readline().strip(), machine.root / ANSWERS[1:]
    assert pid, stray.communicate()
    made = Deaf(int(pid), answers)
    try:
        with answers.open("rb", buffering=0) as told:
            until(lambda: os.pread(told.fileno(), 1, 0) == b"\0", limit_s=120)
        yield made
    finally:
        made.let_go()
        machine.end_session()
        stray.wait(timeout=60)
        answers.unlink()


@pytest.mark.parametrize("deaf", ["main", "thread"], indirect=True)
def test_a_stray_that_is_killed_and_runs_on_is_told_with_what_it_holds_and_refused_until_it_has_ended(
    machine: Machine, behaviour: Behave, deaf: Deaf
) -> None:
    """B01: state R, not D; it looks busy, and no signal ends it."""
    behaviour(PORT, **QUICK)
    install(machine)

    # What is waited for is told every two seconds.
    failed = command(machine, "teardown", "--verify", "--grace", "0.2", "--timeout", "5")

    assert failed.status == Status.LEFT_OVER, failed.stderr
    assert f"killed, 1 left: pid {deaf.pid} (python, state R inside the kernel)" in failed.stderr
    (line,) = (line for line in failed.stderr.splitlines() if "cannot end 1 process" in line)
    assert f"pid {deaf.pid} (python, user root, " in line
    assert f"is in state R inside the kernel, listens on port {RENDEZVOUS}, has nvidia2 open" in line
    assert "a process in state R is inside a system call that looks at no signal" in failed.stderr

    refused = systemctl(machine, "start", check=False)
    assert refused.status != 0
    assert f"rendezvous port {RENDEZVOUS} is taken" in prop(machine, "StatusText")
    assert [prop(machine, name) for name in ("ExecMainStatus", "ActiveState")] == ["3", "failed"]
    who = command(machine, "who", str(RENDEZVOUS), "gpu:2").stdout
    assert f"stray: pid {deaf.pid} (python" in who
    assert "holds 10.0 GiB of GPU 2" in who

    deaf.let_go()
    until(lambda: deaf.pid not in everybody(machine))
    clean = command(machine, "teardown", "--verify")
    assert clean.status == Status.OK, clean.stderr
    assert "gone  memory of GPU 2: at its idle baseline" in clean.stdout
    assert held_bytes(machine) == 0


@pytest.mark.parametrize("deaf", ["main"], indirect=True)
def test_a_deploy_waits_for_a_deaf_stray_starts_nothing_meanwhile_and_serves_when_it_has_ended(
    machine: Machine, behaviour: Behave, deaf: Deaf
) -> None:
    behaviour(PORT, **QUICK)
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))

    said = hear(deploying, f"killed, 1 left: pid {deaf.pid} (python, state R inside the kernel)")
    assert prop(machine, "ActiveState") in ("", "inactive")
    deaf.let_go()

    _, rest = deploying.communicate(timeout=60)
    assert deploying.returncode == Status.OK, said + rest
    assert deaf.pid not in everybody(machine)
