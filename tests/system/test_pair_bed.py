"""The test bed of the pair: stand-in halves and the real router inside the private machine, without dsv4ctl's units."""

import json
import sys
import time

from dsv4ctl.rehearsal import router
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import CONFIG, ENGINE, MODEL
from tests import needs
from tests.system.deploying import QUICK

PREFILL, BOOTSTRAP, DECODE, ROUTER, METRICS = 20001, 20002, 20003, 30001, 20004


def run_unit(machine: Machine, name: str, *argv: object, **environment: str) -> None:
    words = [f"--setenv={key}={value}" for key, value in environment.items()]
    machine.run(("systemd-run", f"--unit={name}", *words, "--", *map(str, argv)), timeout_s=20)


def half(machine: Machine, mode: str, port: int, gpus: str, *words: object) -> None:
    argv = (ENGINE / "bin/python", "-m", "sglang.launch_server", "--model-path", MODEL, "--port", port, "--tp-size", 4)
    more = ("--disaggregation-mode", mode, "--disaggregation-transfer-backend", "nixl", "--nccl-port", port + 100)
    run_unit(machine, f"bed-{mode}", *argv, *more, *words, CUDA_VISIBLE_DEVICES=gpus)


def ask(machine: Machine, port: int, path: str) -> int | None:
    script = f"from dsv4ctl import probe; print(probe.get('http://127.0.0.1:{port}{path}', timeout_s=5).status)"
    said = machine.run((sys.executable, "-P", "-c", script), timeout_s=20).stdout.strip()
    return None if said == "None" else int(said)


def until(machine: Machine, port: int, path: str) -> None:
    end = time.monotonic() + 30
    while ask(machine, port, path) != 200:
        assert time.monotonic() < end, machine.run(("journalctl", "-n", "60", "--no-pager"), timeout_s=20).stdout
        time.sleep(0.1)


def test_a_pair_of_stand_ins_on_eight_gpus_is_served_by_the_real_router(machine: Machine) -> None:
    found = needs.the_router()
    machine.write("/run/standin/all.json", json.dumps(QUICK))
    listed = json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=20).stdout)["gpus"]
    uuids = [gpu["uuid"] for gpu in listed]
    half(machine, "prefill", PREFILL, ",".join(uuids[:4]), "--disaggregation-bootstrap-port", BOOTSTRAP)
    half(machine, "decode", DECODE, ",".join(uuids[4:]))
    front = (router.python(found), "-m", "sglang_router.launch_router", "--port", ROUTER, "--prometheus-port", METRICS)
    legs = ("--prefill", f"http://127.0.0.1:{PREFILL}", BOOTSTRAP, "--decode", f"http://127.0.0.1:{DECODE}")
    run_unit(machine, "bed-router", *front, "--pd-disaggregation", *legs, HOME="/root")

    until(machine, ROUTER, "/readiness")
    asked = (sys.executable, "-P", "-m", "dsv4ctl.rehearsal.ask", str(ROUTER), "hello")
    answer = json.loads(machine.run(asked, timeout_s=60).stdout)

    assert answer["usage"]["completion_tokens"] == 24
    assert machine.run(("sh", "-c", "cat /proc/[0-9]*/comm"), timeout_s=20).stdout.count("sglang::router") == 1
    assert ask(machine, BOOTSTRAP, "/health") == 200


def test_the_config_that_names_the_prepared_router_is_a_config(machine: Machine) -> None:
    found = needs.the_router()
    machine.write("/etc/dsv4ctl/config.toml", CONFIG + router.config(found))
    shown = machine.run(("dsv4ctl", "config", "show"), timeout_s=20).stdout
    assert str(router.python(found)) in shown
