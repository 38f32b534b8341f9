"""The gate of a unit and the proof of a teardown look at GPUs: not free is not started, and not called gone."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import UNIT, prop, systemctl
from tests.system.strays import QUICK, Driver, command, held_bytes, until

DEPLOY = ("deploy", "--mode", "single-tp4", "--port", "30001")

# A notebook, say: no engine, with memory of a GPU, and the driver's device open.
HOLDER = """
import os, sys, time
node = open("/dev/nvidia{index}")
path = "/run/standin-gpus/{uuid}/" + str(os.getpid())
open(path, "w").write("{bytes}\\n")
print("up", flush=True)
time.sleep(600)
"""


def hold(machine: Machine, index: int, *, gib: int = 10) -> subprocess.Popen[str]:
    script = HOLDER.format(index=index, uuid=gpus.uuid(index), bytes=gib * 2**30)
    process = machine.popen(("python3", "-c", script))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def pid_on(machine: Machine, index: int) -> int:
    seen = json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=10).stdout)
    return int(seen["gpus"][index]["processes"][0]["pid"])


def test_a_foreign_process_on_a_gpu_is_named_refused_and_ended_only_when_evict_names_it(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(30001, **QUICK)
    notebook = hold(machine, 2)
    pid = pid_on(machine, 2)

    refused = command(machine, *DEPLOY)
    assert refused.status == Status.FOREIGN
    assert f"pid {pid} (python3, user root, login session 1, since " in refused.stderr
    assert "holds 10.0 GiB of GPU 2" in refused.stderr
    assert f"--evict {pid}" in refused.stderr
    assert notebook.poll() is None

    served = command(machine, *DEPLOY, "--evict", str(pid))
    assert served.status == Status.OK, served.stderr
    assert pid_on(machine, 2) != pid


def test_gpus_that_are_not_asked_for_do_not_matter(machine: Machine, behaviour: Behave) -> None:
    """B26: GPUs outside the plan do not delay the start."""
    behaviour(30001, **QUICK)
    notebook = hold(machine, 6)

    assert command(machine, *DEPLOY).status == Status.OK
    assert command(machine, "teardown", "--verify").status == Status.OK
    assert notebook.poll() is None


def test_a_restart_waits_at_the_gate_until_the_gpu_is_free_and_says_for_whom(
    machine: Machine, behaviour: Behave
) -> None:
    """B25: the unit itself, without any command of ours, does not start an engine on a GPU in use."""
    behaviour(30001, **QUICK)
    assert command(machine, *DEPLOY).status == Status.OK
    systemctl(machine, "stop")
    notebook = hold(machine, 1)
    pid = pid_on(machine, 1)

    systemctl(machine, "start", "--no-block")
    until(lambda: "waiting for the driver" in prop(machine, "StatusText"))
    time.sleep(1.5)
    words = prop(machine, "StatusText")
    assert f"GPU 1: 10.0 GiB in use; pid {pid} (python3, user root, login session 1, since " in words
    assert prop(machine, "ActiveState") == "activating"

    machine.run(("kill", str(pid)), timeout_s=5)
    notebook.wait(timeout=10)
    until(lambda: prop(machine, "ActiveState") == "active")


def test_a_gpu_that_was_exchanged_is_refused_at_the_gate(machine: Machine, behaviour: Behave) -> None:
    behaviour(30001, **QUICK)
    assert command(machine, *DEPLOY).status == Status.OK
    systemctl(machine, "stop")
    (file,) = (machine.root / "var/lib/dsv4ctl/instances").glob("*.json")
    file.write_text(file.read_text().replace(gpus.uuid(3), "GPU-00000000-dead-4000-8000-000000000003"))

    systemctl(machine, "start", check=False)

    assert prop(machine, "ExecMainStatus") == "4"
    assert "GPU 3 (GPU-00000000-dead-4000-8000-000000000003) is not there any more" in status_words(machine)


def status_words(machine: Machine) -> str:
    return str(json.loads((machine.root / "run/dsv4ctl/server/state.json").read_text())["words"])


def test_teardown_verify_fails_for_memory_that_a_foreign_process_holds_and_names_it(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(30001, **QUICK)
    assert command(machine, *DEPLOY).status == Status.OK
    notebook = hold(machine, 0)

    began = time.monotonic()
    done = command(machine, "teardown", "--verify")

    assert done.status == Status.FOREIGN, done.stderr
    assert "LEFT  foreign holder: pid " in done.stdout
    assert "LEFT  memory of GPU 0" in done.stdout
    assert "gone  memory of GPU 1" in done.stdout
    assert time.monotonic() - began < 20
    assert notebook.poll() is None


def test_a_driver_that_hangs_takes_no_command_with_it(machine: Machine, behaviour: Behave, driver: Driver) -> None:
    """B34: the query ignores SIGTERM and never returns; a teardown does all else and says what it could not see."""
    behaviour(30001, **QUICK)
    assert command(machine, *DEPLOY).status == Status.OK
    driver("#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 1; done\n")

    done = command(machine, "teardown", "--verify", "--timeout", "0")

    assert done.status == Status.GPU, done.stderr
    assert "GPU query hung for 10 s" in done.stdout
    assert f"gone  unit {UNIT}" in done.stdout


def test_a_driver_whose_library_was_upgraded_refuses_a_new_start_with_reboot_advice(
    machine: Machine, behaviour: Behave, driver: Driver
) -> None:
    """B40: what runs goes on; a new start has its own exit status."""
    behaviour(30001, **QUICK)
    assert command(machine, *DEPLOY).status == Status.OK
    driver('#!/bin/sh\necho \'{"problem": "cannot ask the NVIDIA driver: Driver/library version mismatch"}\'\n')

    assert prop(machine, "ActiveState") == "active"
    assert command(machine, "status").status == Status.OK
    systemctl(machine, "restart", check=False)
    assert prop(machine, "ExecMainStatus") == "4"
    state = json.loads((machine.root / "run/dsv4ctl/server/state.json").read_text())
    assert "version mismatch" in state["words"]
    assert "reboot the host" in state["advice"]


NO_DRIVER = '#!/bin/sh\necho \'{"problem": "cannot ask the NVIDIA driver: NVML Shared Library Not Found"}\'\n'
NO_GPUS = "mkdir /dev/away && mv /dev/nvidia? /dev/away && mount -t tmpfs none /sys/bus/pci/devices"
GPUS_AGAIN = "umount /sys/bus/pci/devices; mv /dev/away/* /dev && rmdir /dev/away"


def test_a_host_without_any_gpu_has_no_memory_to_prove_and_one_with_a_silent_driver_is_not_proved(
    machine: Machine, driver: Driver
) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("the driver of this host shows through in the machine")
    driver(NO_DRIVER)
    silent = command(machine, "teardown", "--verify")
    machine.run(("sh", "-c", NO_GPUS), timeout_s=10)
    try:
        none = command(machine, "teardown", "--verify")
    finally:
        machine.run(("sh", "-c", GPUS_AGAIN), timeout_s=10)

    assert silent.status == Status.GPU
    assert "LEFT  memory of GPUs: not known: cannot ask the NVIDIA driver" in silent.stdout
    assert none.status == Status.OK, none.stderr
    assert "gone  memory of GPUs: none: no NVIDIA device" in none.stdout


def test_a_platform_without_a_process_list_is_judged_by_memory_alone(
    machine: Machine, behaviour: Behave, driver: Driver
) -> None:
    """B31: attribution is unavailable, which is neither zero nor free."""
    behaviour(30001, **QUICK)
    notebook = hold(machine, 0)
    seen = json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=10).stdout)
    for gpu in seen["gpus"]:
        gpu["processes"] = None
    driver(f"#!/bin/sh\ncat <<'E'\n{json.dumps(seen)}\nE\n")

    said = command(machine, "who", "gpu:0", "gpu:1").stdout

    assert "GPU 0: 10.0 GiB in use; the platform does not tell which processes are on it" in said
    assert "has a GPU device open" in said
    assert "GPU 1: idle" in said
    assert notebook.poll() is None


def test_nothing_of_a_teardown_is_left_on_any_gpu(machine: Machine, behaviour: Behave) -> None:
    """B12: a worker that renamed itself, forked twice, leads a session of its own and is deaf to SIGTERM included."""
    behaviour(30001, **QUICK, leave_renamed_children=1)
    assert command(machine, *DEPLOY).status == Status.OK

    done = command(machine, "teardown", "--verify", "--json")

    assert done.status == Status.OK, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert {c["what"] for c in checks} >= {f"memory of GPU {n}" for n in range(4)} | {"port 30001", f"unit {UNIT}"}
    assert all(c["ok"] for c in checks)
    assert held_bytes(machine) == 0
