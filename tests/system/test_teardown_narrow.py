"""A teardown of a part: by mode, role and GPUs; what was not asked for goes on under the pids that it had."""

import json
import time

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, UNIT, prop
from tests.system.pairs import DECODE, PREFILL, ROUTER, deploy, prepare
from tests.system.strays import command, everybody, held_bytes, main_of
from tests.system.test_teardown_others import serve


def pids(machine: Machine) -> dict[str, str]:
    """Unit -> its main process; "0" when it is down."""
    return {unit: prop(machine, "MainPID", unit) for unit in (PREFILL, DECODE, ROUTER)}


def test_of_a_pair_only_the_role_and_only_the_gpus_go_that_are_asked_for(machine: Machine) -> None:
    prepare(machine, on_gpus=True)
    deploy(machine, "pd")
    before = pids(machine)

    wrong = command(machine, "teardown", "--verify", "--mode", "single-tp4")
    unknown = command(machine, "teardown", "--verify", "--role", "server")
    shown = command(machine, "teardown", "--gpus", "4-7", "--dry-run")
    values = json.loads(command(machine, "teardown", "--gpus", "4-7", "--dry-run", "--json").stdout)
    assert (wrong.status, unknown.status, shown.status) == (Status.USAGE, Status.USAGE, Status.OK)
    assert "cannot tear down mode single-tp4: mode pd is deployed" in wrong.stderr
    assert "cannot find server: installed are prefill, decode, router" in unknown.stderr
    assert f"stop {DECODE}" in shown.stdout
    assert PREFILL not in shown.stdout
    assert any(f"stop {DECODE}" in step for step in values["steps"])
    assert pids(machine) == before

    decode = command(machine, "teardown", "--verify", "--role", "decode")
    assert decode.status == Status.OK, decode
    assert pids(machine) == before | {DECODE: "0"}
    assert "gone  memory of GPU 4" in decode.stdout
    assert "memory of GPU 0" not in decode.stdout

    prefill = command(machine, "teardown", "--verify", "--gpus", "0-3", "--json")
    assert prefill.status == Status.OK, prefill
    assert all(check["ok"] for check in json.loads(prefill.stdout)["checks"])
    assert pids(machine) == {PREFILL: "0", DECODE: "0", ROUTER: before[ROUTER]}
    assert held_bytes(machine) == 0

    rest = command(machine, "teardown", "--verify", "--mode", "pd")
    assert rest.status == Status.OK, rest
    assert pids(machine) == dict.fromkeys((PREFILL, DECODE, ROUTER), "0")


def test_evict_ends_whom_it_names_and_nobody_else(machine: Machine) -> None:
    """Several at once: a foreign process on the port, and one that holds nothing."""
    web, other = serve(machine), machine.popen(("sleep", "600"))
    idle = machine.popen(("sh", "-c", "echo $$; exec sleep 600"))
    assert idle.stdout is not None
    named = idle.stdout.readline().strip()
    pid = main_of(machine, PORT)
    refused = command(machine, "teardown", "--verify", "--port", str(PORT))
    assert refused.status == Status.FOREIGN
    assert web.poll() is None

    done = command(machine, "teardown", "--verify", "--port", str(PORT), "--evict", str(pid), "--evict", named)

    assert done.status == Status.OK, done
    assert not {pid, int(named)} & everybody(machine).keys()
    assert other.poll() is None


def test_the_time_limit_bounds_a_wait_for_memory_that_nobody_gives_back(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    machine.run(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)), timeout_s=60)
    # Memory that the driver charges to a process that is none of ours and that it does not list.
    program = machine.root / "run/rehearsal/dsv4ctl-nvml"
    before, seen = program.read_text(), json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=20).stdout)
    for gpu in seen["gpus"]:
        gpu["processes"] = []
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(seen)}\nE\n")
    began = time.monotonic()

    done = command(machine, "teardown", "--verify", "--timeout", "2")

    program.write_text(before)
    assert done.status == Status.GPU, done
    assert "LEFT  memory of GPU 0: GPU 0: " in done.stdout
    assert "the driver lists no process on it after 2 s" in done.stdout
    assert time.monotonic() - began < 60
    assert f"gone  unit {UNIT}" in done.stdout
