"""Engines that somebody started by hand: the config for them, and into our slice without a restart."""

import json

from dsv4ctl import config
from dsv4ctl.engine import readback
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus, router
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE, MODEL
from tests import needs
from tests.conftest import Behave
from tests.system.strays import (
    QUICK,
    command,
    engines,
    held_bytes,
    listening,
    main_of,
    server_line,
    shell,
    tell,
    until,
)

SECRET = "sk-typed-by-hand"  # noqa: S105 -- it is to be found nowhere
OPTIONS = f"--context-length 131072 --schedule-conservativeness 0.8 --trust-remote-code --api-key {SECRET}"
SCOPE = "dsv4-adopted-server-30000.scope"


def cgroups_of(machine: Machine, pids: dict[int, str]) -> set[str]:
    texts = ((machine.root / f"proc/{pid}/cgroup").read_text() for pid in pids)
    ours = f"/{machine.group.name}"
    return {line[3:].removeprefix(ours) for text in texts for line in text.splitlines() if line.startswith("0::")}


def test_a_tp4_server_by_hand_is_written_down_moved_and_later_ended_through_its_scope(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(30000, **QUICK)
    line = server_line(30000, on=(0, 1, 2, 3), more=OPTIONS)
    ours = shell(machine, f"export SGLANG_LOG_MS=1 HF_TOKEN=hf_secret\nnohup env {line} &")
    until(lambda: listening(machine, 30000))
    before = engines(machine)

    shown = command(machine, "adopt", "--dry-run")
    words = ("adopt", "--scope", "--yes", "--out", "/etc/dsv4ctl/adopted.toml", "--api-key-file", "/etc/dsv4ctl/key")
    done = command(machine, *words)

    assert (shown.status, done.status) == (Status.OK, Status.OK), (shown, done)
    said = shown.stdout + shown.stderr + done.stdout + done.stderr
    assert "`dsv4ctl plan --config /etc/dsv4ctl/adopted.toml`" in done.stderr
    assert SECRET not in said
    assert "hf_secret" not in said
    assert engines(machine) == before
    assert cgroups_of(machine, before) == {f"/dsv4.slice/{SCOPE}"}
    assert ours.poll() is None
    key = machine.root / "etc/dsv4ctl/key"
    assert (key.read_text(), key.stat().st_mode & 0o777) == (f"{SECRET}\n", 0o600)
    _reads_back_the_same(machine, f"{ENGINE}/bin/python -m sglang.launch_server --port 30000 --tp 4 {OPTIONS}")
    _is_shown_and_planned_for(machine, main_of(machine, 30000))
    assert tell(ours, "dsv4ctl adopt --scope --yes --json | tail -c 300").count("moved") == 1

    ended = command(machine, "teardown", "--verify")

    assert ended.status == Status.OK, ended
    assert f"by its unit {SCOPE}" in ended.stderr
    assert (engines(machine), held_bytes(machine)) == ({}, 0)
    assert ours.poll() is None
    assert not list(machine.group.rglob(SCOPE))


def _reads_back_the_same(machine: Machine, typed: str) -> None:
    """Config -> render -> parse: what was typed stands in the unit's command line, the key in none."""
    rendered = json.loads(command(machine, "render", "--config", "/etc/dsv4ctl/adopted.toml", "--json").stdout)
    (text,) = (text for path, text in rendered.items() if path.endswith("dsv4-server.service"))
    assert SECRET not in "".join(rendered.values())
    (exec_start,) = (line for line in text.replace("\\\n", "").splitlines() if line.startswith("ExecStart="))
    argv = exec_start.replace('"', "").split(" -- ", 1)[1].split()
    by_hand, ours = readback.launch(typed.split()), readback.launch(argv)
    assert by_hand is not None
    assert ours is not None
    assert {g for g in by_hand.options if g.name != "--api-key"} - set(ours.options) == set()
    assert ours.get("--model-path") == str(MODEL)
    text = (machine.root / "etc/dsv4ctl/adopted.toml").read_text()
    assert config.load(text, {}, path="").spec.mode.roles[0].gpus == (0, 1, 2, 3)


def _is_shown_and_planned_for(machine: Machine, pid: int) -> None:
    (row,) = json.loads(command(machine, "status", "--json").stdout)["rows"]
    assert (row["unit"], row["state"], row["health"], row["gpus"]) == (SCOPE, "adopted", "ready", [0, 1, 2, 3])
    plan = command(machine, "plan", "--config", "/etc/dsv4ctl/adopted.toml")
    assert plan.status == Status.CHANGES, plan
    (step,) = (line for line in plan.stdout.splitlines() if f"end pid {pid} " in line)
    assert f"by its unit {SCOPE}" in step


def test_a_pair_by_hand_of_several_starters_is_moved_as_it_is_and_a_deploy_takes_its_place(
    machine: Machine, behaviour: Behave
) -> None:
    """B77: its key goes into a file, from which engines, router and probes have it, and into no argument of ours."""
    found = needs.the_router()
    for port in (30100, 30200):
        behaviour(port, **QUICK)
    half = f"--api-key {SECRET} --disaggregation-transfer-backend nixl --disaggregation-mode"
    prefill = server_line(30100, on=(0, 1, 2, 3), more=f"{half} prefill --nccl-port 20101")
    decode = server_line(30200, on=(4, 5, 6, 7), more=f"{half} decode --nccl-port 20111")
    legs = (
        f"--pd-disaggregation --prefill http://127.0.0.1:30100 8998 --decode http://127.0.0.1:30200 --api-key {SECRET}"
    )
    front = f"{router.python(found)} -m sglang_router.launch_router --port 30300 --prometheus-port 29300 {legs}"
    ours = shell(machine, f"{prefill} &\nHOME=/root nohup {front} >/tmp/router.log 2>&1 &")
    uuids = ",".join(gpus.uuid(index) for index in range(4, 8))
    unit = (
        "systemd-run",
        "--unit=my-decode",
        f"--setenv=CUDA_VISIBLE_DEVICES={uuids}",
        "--",
        "sh",
        "-c",
        f"exec {decode.split(' ', 1)[1]}",
    )
    machine.run(unit, timeout_s=20)
    until(lambda: all(listening(machine, port) for port in (30100, 30200, 30300)))
    pids = {port: main_of(machine, port) for port in (30100, 30200, 30300)}
    before = engines(machine)

    words = ("adopt", "--scope", "--yes", "--out", "/etc/dsv4ctl/adopted.toml", "--api-key-file", "/etc/dsv4ctl/key")
    done = command(machine, *words)

    assert done.status == Status.OK, done
    assert {port: main_of(machine, port) for port in pids} == pids
    assert (engines(machine), ours.poll()) == (before, None)
    assert cgroups_of(machine, before | {pids[30300]: "router"}) == {
        f"/dsv4.slice/dsv4-adopted-{name}.scope" for name in ("prefill-30100", "decode-30200", "router-30300")
    }
    spec = config.load((machine.root / "etc/dsv4ctl/adopted.toml").read_text(), {}, path="").spec
    assert (spec.mode.name, spec.port, spec.router.metrics_port) == ("pd", 30300, 29300)
    assert spec.internal_port == 20101
    assert (spec.transfer.backend, spec.transfer.bootstrap_port) == ("nixl", 8998)
    shown = {row["unit"]: row for row in json.loads(command(machine, "status", "--json").stdout)["rows"]}
    assert {row["state"] for row in shown.values()} == {"adopted"}
    assert {row["role"] for row in shown.values()} == {"prefill", "decode", "router"}

    for port in (20102, 20112):
        behaviour(port, **QUICK)
    deployed = command(machine, "deploy", "--config", "/etc/dsv4ctl/adopted.toml")

    assert deployed.status == Status.OK, deployed
    assert deployed.stderr.count("by its unit dsv4-adopted-") == 3
    assert not list(machine.group.rglob("dsv4-adopted-*"))
    assert engines(machine).keys().isdisjoint(before)
    rows = json.loads(command(machine, "status", "--json").stdout)["rows"]
    assert {(row["state"], row["health"]) for row in rows} == {("active", "ready"), ("active", "2/2 workers")}
    arguments = machine.run(("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), timeout_s=10).stdout
    assert SECRET not in arguments + deployed.stdout + deployed.stderr + done.stdout + done.stderr
    assert SECRET not in machine.run(("journalctl", "--no-pager", "-o", "cat", "-u", "dsv4-*"), timeout_s=20).stdout
