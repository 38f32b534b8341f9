"""Faults of a stop: each phase, each signal, requests in flight, engines that do not end (B14, B84, B85, B87)."""

import json
import subprocess
import time

import pytest

from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
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
    processes_of_ours,
    prop,
    systemctl,
    until,
    wait_for_active,
    wait_for_journal,
    wait_for_state,
    wait_for_whole_tree,
    wait_for_words,
)

# Ends of a stop that waits for nothing but the machine; the limits themselves come on top.
MARGIN_S = 6.0
CLIENT = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
body = {"model": "DeepSeek-V4-Flash", "prompt": "hello", "max_tokens": int(sys.argv[2]), "stream": True}
connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
answer = connection.getresponse()
tokens = 0
for line in answer:
    tokens += line.startswith(b"data: {")
    if tokens == 1 and line.startswith(b"data: {"):
        print("began", flush=True)
    if line.startswith(b"data: [DONE]"):
        print("done", tokens, flush=True)
"""
ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health", timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def stream(machine: Machine, tokens: int) -> subprocess.Popen[str]:
    """A client in the middle of a stream."""
    client = machine.popen(("python3", "-c", CLIENT, str(PORT), str(tokens)))
    assert client.stdout is not None
    assert client.stdout.readline() == "began\n"
    return client


def health(machine: Machine) -> str:
    return machine.run(("python3", "-c", ASK, str(PORT)), timeout_s=20).stdout.strip()


def ended_well(machine: Machine) -> bool:
    """Whether the unit is down, its main process ended with 0, and nothing of it was started again or is left."""
    names = ("ActiveState", "Result", "ExecMainStatus", "NRestarts")
    assert [prop(machine, name) for name in names] == ["inactive", "success", "0", "0"]
    return processes_of_ours(machine) == 0


# ---- in each phase ---------------------------------------------------------------------------------------------------

# A phase -> how the stand-in is held in it, and what systemctl status says of it.
HELD: dict[str, tuple[dict[str, object], str]] = {
    "starting": ({"import_s": 30.0}, "starting the engine"),
    "import": ({"stall_in": "import"}, "starting the engine"),
    "weights": ({"stall_in": "weights"}, "loading weights 22/46"),
    "kernels": ({"stall_in": "kernels"}, "setting up the memory pools"),
    "graphs": ({"stall_in": "graphs"}, "capturing graphs 17/36"),
    "warmup": ({"stall_in": "warmup"}, "warming up"),
    "proof": ({"health_but_no_generation": True}, "proving it"),
}


def begin(machine: Machine, behaviour: Behave, phase: str, **more: object) -> None:
    """Have systemd start an engine that is held in a phase, and wait until it is there; `ready` is one, too."""
    held, said = HELD.get(phase, ({}, "ready: "))
    behaviour(PORT, **(QUICK | held | more))
    install(machine)
    systemctl(machine, "start", "--no-block")
    wait_for_words(machine, said)


@pytest.mark.parametrize("phase", HELD)
def test_a_stop_during_a_start_leaves_nothing_whatever_the_phase(
    machine: Machine, behaviour: Behave, phase: str
) -> None:
    """B14: SGLang's workers die with their parent only once they have imported, so a TERM alone would leave orphans."""
    begin(machine, behaviour, phase)
    time.sleep(0.3)  # well into it: the words are told at its beginning

    began = time.monotonic()
    systemctl(machine, "stop")

    assert time.monotonic() - began < MARGIN_S
    assert ended_well(machine)


def test_a_stop_while_the_gate_looks_starts_no_engine(machine: Machine, behaviour: Behave) -> None:
    """B14: an interpreter on a slow disk keeps the gate waiting, and the stop is heard all the same."""
    behaviour(PORT, **QUICK)
    install(machine)
    hold = "import os, time\nwhile os.path.exists('/run/hold'): time.sleep(0.05)\n"
    (packages,) = (machine.root / "opt/sglang/lib").glob("python3*/site-packages")
    (packages / "sitecustomize.py").write_text(hold)
    machine.write("/run/hold", "")
    systemctl(machine, "start", "--no-block")
    wait_for_words(machine, "checking ports, engine and model")
    until(lambda: processes_of_ours(machine) > 1, lambda: "the gate asks no interpreter")

    systemctl(machine, "stop")

    (packages / "sitecustomize.py").unlink()
    (machine.root / "run/hold").unlink()
    assert ended_well(machine)
    assert "server_args" not in journal(machine, "-u", UNIT)


def test_a_second_signal_during_a_drain_ends_the_wait_for_requests(machine: Machine, behaviour: Behave) -> None:
    """B14: whoever asks twice does not want to wait any more."""
    begin(machine, behaviour, "ready", token_s=0.05)
    client = stream(machine, 600)
    systemctl(machine, "stop", "--no-block")
    wait_for_words(machine, "draining, 1 request left")

    systemctl(machine, "kill", "--signal=TERM", "--kill-who=main")

    wait_for_state(machine, "inactive", limit_s=MARGIN_S)
    assert "done 600" not in client.communicate(timeout=10)[0]
    assert ended_well(machine)


# ---- by each signal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "last"), [("weights", "INT"), ("ready", "QUIT")])
def test_only_signals_that_ask_for_a_stop_stop_it_and_that_is_no_crash(
    machine: Machine, behaviour: Behave, phase: str, last: str
) -> None:
    """B14: HUP, USR1 and USR2 would end a program by default; a supervisor says where it is and goes on."""
    begin(machine, behaviour, phase)
    before = inside(machine)

    for name in ("HUP", "USR1", "USR2"):
        systemctl(machine, "kill", f"--signal={name}", "--kill-who=main")
        wait_for_journal(machine, f"SIG{name} changes nothing here")
    assert inside(machine) == before
    systemctl(machine, "kill", f"--signal={last}", "--kill-who=main")

    # Before it was ready, systemd calls every end a failure; "auto-restart" would be a start against somebody's will.
    down = "failed" if phase == "weights" else "dead"
    until(lambda: prop(machine, "SubState") == down, lambda: last_lines(machine), limit_s=MARGIN_S)
    assert [prop(machine, name) for name in ("ExecMainStatus", "NRestarts")] == ["0", "0"]
    assert processes_of_ours(machine) == 0


@pytest.mark.parametrize("victim", ["supervisor", "engine", "scheduler"])
def test_a_process_that_is_killed_during_the_load_takes_the_others_with_it_and_all_is_started_again(
    machine: Machine, behaviour: Behave, victim: str
) -> None:
    """B14: no worker of the killed generation is left to hold memory of the next one."""
    configure(machine, '[limits]\nrestart = "1s"')
    begin(machine, behaviour, "weights")
    before = inside(machine)
    behaviour(PORT, **QUICK)

    machine.run(("kill", "-KILL", str(before[victim])), timeout_s=5)

    wait_for_active(machine)
    assert prop(machine, "NRestarts") == "1"
    assert not set(inside(machine).values()) & set(before.values())
    wait_for_whole_tree(machine)


# ---- with requests in flight -----------------------------------------------------------------------------------------


def test_a_failing_health_during_a_drain_ends_no_stream_and_starts_nothing(machine: Machine, behaviour: Behave) -> None:
    """B84: health is 503 for as long as the stream lasts, longer than what makes a serving engine unhealthy."""
    configure(machine, '[limits]\nwatch = "1s"\nunhealthy = "2s"\ndrain = "60s"')
    behaviour(PORT, **(QUICK | {"token_s": 0.05}))
    deploy(machine)
    client = stream(machine, 80)

    stopping = machine.popen(("dsv4ctl", "teardown", "--verify"))
    wait_for_words(machine, "draining, 1 request left")
    assert health(machine) == "503"
    said, _ = client.communicate(timeout=30)
    _, problems = stopping.communicate(timeout=30)

    assert said == "done 80\n"
    assert stopping.returncode == 0, problems
    assert ended_well(machine)
    assert "unhealthy" not in journal(machine, "-u", UNIT)


def test_a_restart_lets_a_stream_finish_too(machine: Machine, behaviour: Behave) -> None:
    """B84: a restart is a stop first; its failing health is no reason to hurry."""
    configure(machine, '[limits]\nwatch = "1s"\nunhealthy = "2s"')
    begin(machine, behaviour, "ready", token_s=0.05)
    client = stream(machine, 60)

    systemctl(machine, "restart")

    assert client.communicate(timeout=10)[0] == "done 60\n"
    assert [prop(machine, name) for name in ("ActiveState", "NRestarts")] == ["active", "0"]


def test_an_engine_that_somebody_else_told_to_stop_finishes_its_stream_and_is_started_again(
    machine: Machine, behaviour: Behave
) -> None:
    """B84: TERM to the engine's main process behind systemd's back is a drain as well, and not what was asked for."""
    configure(machine, '[limits]\nwatch = "1s"\nunhealthy = "2s"\nrestart = "1s"')
    begin(machine, behaviour, "ready", token_s=0.05)
    client = stream(machine, 60)

    machine.run(("kill", "-TERM", str(inside(machine)["engine"])), timeout_s=5)

    assert client.communicate(timeout=15)[0] == "done 60\n"
    until(lambda: prop(machine, "NRestarts") == "1", lambda: prop(machine, "StatusText"))
    wait_for_active(machine)
    assert "somebody else told the engine to stop" in journal(machine, "-u", UNIT)


def test_a_stream_that_outlasts_the_drain_limit_is_aborted_and_the_unit_still_ends_well(
    machine: Machine, behaviour: Behave
) -> None:
    """B84: the wait for requests has a limit, and the operator reads how long it still is."""
    configure(machine, '[limits]\ndrain = "2s"\nengine_stop = "5s"')
    begin(machine, behaviour, "ready", token_s=0.05, drain_poll_s=2.0)
    client = stream(machine, 600)

    began = time.monotonic()
    systemctl(machine, "stop", "--no-block")
    wait_for_words(machine, "the drain limit is over, requests were aborted")
    wait_for_state(machine, "inactive", limit_s=7 + MARGIN_S)

    assert 2 <= time.monotonic() - began < 7 + MARGIN_S
    assert "done 600" not in client.communicate(timeout=10)[0]
    assert ended_well(machine)


# ---- that does not end -----------------------------------------------------------------------------------------------

STUBBORN: dict[str, dict[str, object]] = {
    "ignores SIGTERM": {"ignore_sigterm": True},
    "joins its children for ever": {"join_children_forever_on_term": True},
    "leaves renamed children in sessions of their own": {"leave_renamed_children": 3},
}


@pytest.mark.parametrize("how", STUBBORN)
def test_an_engine_that_does_not_end_is_ended_at_its_limit_and_the_next_start_works(
    machine: Machine, behaviour: Behave, how: str
) -> None:
    """B85: drain, engine's own stop, KILL, a last look; the whole is bounded far below TimeoutStopSec."""
    configure(machine, '[limits]\ndrain = "1s"\nengine_stop = "2s"')
    begin(machine, behaviour, "ready", **STUBBORN[how])

    began = time.monotonic()
    systemctl(machine, "stop")
    took_s = time.monotonic() - began

    assert took_s < 3 + MARGIN_S
    assert ended_well(machine)
    assert gpu_bytes(machine) == 0
    systemctl(machine, "start")


def gpu_bytes(machine: Machine) -> int:
    """What all GPUs together hold."""
    seen = json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=10).stdout)
    return sum(gpu["used_bytes"] for gpu in seen["gpus"])


def test_an_engine_that_ignores_sigterm_during_its_load_is_ended_at_once(machine: Machine, behaviour: Behave) -> None:
    """B85: nothing is served yet, so nothing is waited for."""
    begin(machine, behaviour, "weights", ignore_sigterm=True)

    began = time.monotonic()
    systemctl(machine, "stop")

    assert time.monotonic() - began < MARGIN_S
    assert ended_well(machine)


def test_a_hung_scheduler_does_not_hold_a_stop_up_for_ever(machine: Machine, behaviour: Behave) -> None:
    """B85: a request that will never end keeps the real engine waiting without any limit of its own."""
    configure(machine, '[limits]\ndrain = "1s"\nengine_stop = "2s"')
    begin(machine, behaviour, "ready")
    stuck = stream(machine, 100_000)
    machine.run(("kill", "-STOP", str(inside(machine)["scheduler"])), timeout_s=5)

    began = time.monotonic()
    systemctl(machine, "stop")

    assert time.monotonic() - began < 3 + MARGIN_S
    assert ended_well(machine)
    stuck.communicate(timeout=10)
    systemctl(machine, "start")


def test_a_stop_that_hits_systemds_own_limit_leaves_a_state_from_which_the_next_start_works(
    machine: Machine, behaviour: Behave
) -> None:
    """B87: a supervisor that cannot run at all, for its whole unit is frozen, is ended by systemd with all its tree."""
    begin(machine, behaviour, "ready")
    machine.write(f"/etc/systemd/system/{UNIT}.d/override.conf", "[Service]\nTimeoutStopSec=2\n")
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)
    # In a folder of its own: systemd would thaw the unit's.
    (group,) = machine.group.rglob(UNIT)
    (group / "frozen").mkdir()
    machine.run(
        ("sh", "-c", f"echo {prop(machine, 'MainPID')} >/sys/fs/cgroup/dsv4.slice/{UNIT}/frozen/cgroup.procs"),
        timeout_s=5,
    )
    (group / "frozen/cgroup.freeze").write_text("1")

    began = time.monotonic()
    systemctl(machine, "stop", check=False)

    assert 2 <= time.monotonic() - began < 2 + MARGIN_S
    assert [prop(machine, name) for name in ("ActiveState", "Result")] == ["failed", "timeout"]
    assert processes_of_ours(machine) == 0
    assert deploy(machine).status == 0
