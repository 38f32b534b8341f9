"""A pair that misbehaves behind the real router: deploy fails and says whose fault it is, and so does the probe."""

from typing import Any

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.pairs import DECODE, PREFILL, ROUTER, deploy, engine, kill, misbehave, prepare, probe

# What is wrong with which half -> the verdict.
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hand-off": ("prefill", {"no_transfer": True}),
    "garbage": ("prefill", {"wrong_tokens": "repeated"}),
    "decode": ("decode", {"decode_never_answers": True}),
}
PROOF = 'proof = "6s"'


def test_b74_a_prefill_that_dies_on_a_bare_generate_lives_through_deploy_status_probe_and_watch(
    machine: Machine, behaviour: Behave
) -> None:
    """B74: no generation is ever sent to a half; the one that proves it goes through the router."""
    prepare(machine)
    for half in ("prefill", "decode"):
        misbehave(behaviour, half, die_on_bare_generate=True)
    deploy(machine, "small")
    before = [engine(machine, unit) for unit in (PREFILL, DECODE)]

    probe(machine)
    machine.run(("dsv4ctl", "status"), timeout_s=20)

    assert [engine(machine, unit) for unit in (PREFILL, DECODE)] == before


def test_a_router_that_hangs_is_the_verdict_of_the_probe(machine: Machine) -> None:
    prepare(machine, PROOF)
    deploy(machine, "small")
    kill(machine, ROUTER, "STOP")

    said = probe(machine, check=False)

    assert said.status == Status.NOT_READY
    assert "router" in said.stderr
