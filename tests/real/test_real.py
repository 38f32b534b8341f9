"""The main job on the real SGLang (CPU, no GPUs): deployed, proved, restarted, crashed in each way, drained, torn down.

The tests are one story and run in order: every one leaves the instance as the next expects it, since a start takes
half a minute on two cores.
"""

import json
import time

import pytest

from dsv4ctl.child import Done
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.real.byhand import children

UNIT = "dsv4-server.service"
START_S = 1200


def dsv4ctl(machine: Machine, *words: str, check: bool = True) -> Done:
    return machine.run(("dsv4ctl", *words), timeout_s=START_S * 2, check=check)


def show(machine: Machine, name: str) -> str:
    return machine.run(("systemctl", "show", UNIT, "--value", "-p", name), timeout_s=120).stdout.strip()


def pids(machine: Machine) -> list[int]:
    files = [f for f in machine.group.rglob("cgroup.procs") if "/dsv4.slice/" in str(f)]
    return [int(line) for f in files for line in f.read_text().split()]


def engine(machine: Machine) -> int:
    """The engine's main process, in the machine's own numbers."""
    return children(machine, int(show(machine, "MainPID")))[0]


def titled(machine: Machine, pid: int, title: str) -> int | None:
    """The child of `pid` whose comm begins with `title`, or None while there is none."""
    # Children come and go while they are looked at.
    script = f"for child in $(cat /proc/{pid}/task/*/children); do echo $child $(cat /proc/$child/comm); done"
    lines = machine.run(("sh", "-c", f"{{ {script}; }} 2>/dev/null || true"), timeout_s=120).stdout.splitlines()
    found = (int(child) for child, _, comm in (line.partition(" ") for line in lines) if comm.startswith(title))
    return next(found, None)


def until_active(machine: Machine) -> None:
    end = time.monotonic() + START_S
    while show(machine, "ActiveState") != "active":
        assert time.monotonic() < end, machine.run(("journalctl", "-u", UNIT, "-n", "40"), timeout_s=120).stdout
        time.sleep(0.5)


def until(machine: Machine, words: str) -> None:
    end = time.monotonic() + START_S
    while words not in show(machine, "StatusText"):
        assert time.monotonic() < end, show(machine, "StatusText")
        time.sleep(0.05)


CHAT = """
import json, sys, urllib.request
body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}).encode()
url = "http://127.0.0.1:30001/v1/chat/completions"
request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=300))["usage"]["completion_tokens"])
"""

STREAM = """
import json, sys, urllib.request
asked = {"model": "tiny", "prompt": "hello", "max_tokens": 600, "ignore_eos": True, "stream": True}
body = json.dumps(asked).encode()
request = urllib.request.Request("http://127.0.0.1:30001/v1/completions", body, {"Content-Type": "application/json"})
lines = [line for line in urllib.request.urlopen(request, timeout=300) if line.startswith(b"data:")]
print(len(lines), lines[-1].decode().strip())
"""


def test_the_real_engine_is_deployed_and_proved(machine: Machine) -> None:
    served = dsv4ctl(machine, "deploy", "--mode", "single-tp4")

    assert f"{UNIT} serves tiny on http://127.0.0.1:30001" in served.stdout
    assert int(machine.run(("python3", "-c", CHAT), timeout_s=400).stdout) > 0


def test_status_reads_the_real_engines_figures(machine: Machine) -> None:
    row = json.loads(dsv4ctl(machine, "status", "--json").stdout)["rows"][0]

    assert (row["state"], row["health"], row["model"], row["context_length"]) == ("active", "ready", "tiny", 2048)
    assert (row["kv_tokens"], row["running"], row["waiting"]) == (4096, 0, 0)


def test_the_same_deploy_again_does_nothing(machine: Machine) -> None:
    before = show(machine, "InvocationID")

    assert dsv4ctl(machine, "deploy").stdout.startswith("nothing to do")
    assert show(machine, "InvocationID") == before


def test_it_is_restarted_and_proved_again(machine: Machine) -> None:
    machine.run(("systemctl", "restart", UNIT), timeout_s=START_S * 2)

    assert dsv4ctl(machine, "deploy").stdout.startswith("nothing to do")


@pytest.mark.parametrize("victim", ["sglang::schedul", "sglang::detoken", "main"])
def test_a_sigkill_while_it_serves_is_restarted_without_an_orphan(machine: Machine, victim: str) -> None:
    before = set(pids(machine))
    main = engine(machine)
    machine.run(("kill", "-KILL", str(main if victim == "main" else titled(machine, main, victim))), timeout_s=60)
    until(machine, "starting")
    assert not before & set(pids(machine))

    until_active(machine)
    assert int(machine.run(("python3", "-c", CHAT), timeout_s=400).stdout) > 0


@pytest.mark.parametrize("victim", ["main while it imports", "main while its children import", "scheduler"])
def test_a_sigkill_during_the_load_fails_the_deploy_and_leaves_nothing(machine: Machine, victim: str) -> None:
    dsv4ctl(machine, "teardown")
    deploying = machine.popen(("dsv4ctl", "deploy"))
    until(machine, "starting the engine")
    main = engine(machine)
    machine.run(("kill", "-KILL", str(victim_pid(machine, main, victim))), timeout_s=60)
    _, said = deploying.communicate(timeout=START_S)

    assert deploying.returncode == Status.NOT_READY, said
    assert "cannot bring up" in said
    assert pids(machine) == []


def victim_pid(machine: Machine, main: int, victim: str) -> int:
    if victim == "main while it imports":
        return main
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if victim == "main while its children import" and len(children(machine, main)) >= 3:
            return main
        if victim == "scheduler" and (found := titled(machine, main, "sglang::schedul")):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{victim} never came")


def test_a_stream_in_flight_is_finished_before_the_engine_ends(machine: Machine) -> None:
    dsv4ctl(machine, "deploy")
    stream = machine.popen(("python3", "-c", STREAM))
    while not json.loads(dsv4ctl(machine, "status", "--json").stdout)["rows"][0]["running"]:
        assert stream.poll() is None
        time.sleep(0.1)

    gone = dsv4ctl(machine, "teardown", "--verify")
    out, _ = stream.communicate(timeout=START_S)

    assert out.endswith("data: [DONE]\n")
    assert int(out.split()[0]) > 400
    assert all(line.startswith("gone") for line in gone.stdout.splitlines())
    assert show(machine, "Result") == "success"


def test_nothing_is_left(machine: Machine) -> None:
    assert pids(machine) == []
    listeners = machine.run(("ss", "-ltnH"), timeout_s=120).stdout
    assert listeners == ""
