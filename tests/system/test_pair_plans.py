"""A deploy of several roles where something changes or fails: who is restarted, who is not, and what is said."""

import json

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import prop
from tests.system.pairs import DECODE, PREFILL, ROUTER, deploy, engine, misbehave, prepare, probe


def test_a_half_that_fails_ends_the_deploy_and_what_the_other_half_does_is_told(
    machine: Machine, behaviour: Behave
) -> None:
    prepare(machine)
    misbehave(behaviour, "prefill", load_s=60)
    misbehave(behaviour, "decode", crash_in="weights")

    failed = deploy(machine, "small", check=False)

    assert failed.status == Status.NOT_READY
    assert f"cannot bring up {DECODE}: " in failed.stderr
    assert f"meanwhile {PREFILL}: " in failed.stderr, failed.stderr
    assert prop(machine, "NRestarts", ROUTER) == "0"
    assert prop(machine, "ActiveEnterTimestampMonotonic", ROUTER) == "0"


def test_only_the_router_is_away_when_only_it_changes_and_the_stops_are_in_order_whatever_is_damaged(
    machine: Machine,
) -> None:
    prepare(machine)
    deploy(machine, "small")
    halves = {unit: engine(machine, unit) for unit in (PREFILL, DECODE)}
    change = ("--mode", "small", "--port", "30001", "--router-policy", "random")
    planned = machine.run(("dsv4ctl", "plan", "--json", *change), timeout_s=60, check=False)
    away = json.loads(planned.stdout)["outage"]
    before = engine(machine, ROUTER)

    deploy(machine, *change[1:2], *change[4:])

    assert (away["since"], away["until"], away["seconds"] > 0) == (ROUTER, ROUTER, True)
    assert away["words"].startswith(f"port 30001 does not answer from the stop of {ROUTER} to the proof of {ROUTER}")
    assert {unit: engine(machine, unit) for unit in halves} == halves
    assert engine(machine, ROUTER) != before
    assert json.loads(probe(machine, "--json").stdout)["verdict"] == "ok"
    assert "no generation was asked for" in probe(machine, "--role", "decode").stdout

    machine.run(("sh", "-c", "for f in /var/lib/dsv4ctl/releases/*/release.json; do echo '{' > $f; done"), timeout_s=10)
    gone = machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=120)

    stops = [line.split()[4] for line in gone.stderr.splitlines() if " stop dsv4-" in line]
    assert stops == [f"{unit}:" for unit in (ROUTER, DECODE, PREFILL)]
