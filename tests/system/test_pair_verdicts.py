"""A pair that misbehaves behind the real router: deploy fails and names who is at fault, and so does the probe."""

from typing import Any

import pytest

from dsv4ctl.pair import UNPROVED, PairVerdict
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.pairs import DECODE, PREFILL, deploy, engine, misbehave, prepare, probe

# Verdict -> which half does what.
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hand-off": ("prefill", {"no_transfer": True}),
    "garbage": ("prefill", {"wrong_tokens": "repeated"}),
    "decode": ("decode", {"decode_never_answers": True}),
}
SHORT = {"proof": "8s", "drain": "2s"}


@pytest.mark.parametrize("verdict", FAULTS)
def test_b79_a_pair_that_cannot_generate_is_not_deployed_and_the_verdict_names_who_is_at_fault(
    machine: Machine, behaviour: Behave, verdict: str
) -> None:
    """B79: three active units are no pair; one generation that crosses from prefill to decode makes them one."""
    half, what = FAULTS[verdict]
    prepare(machine, limits=SHORT)
    misbehave(behaviour, half, **what)

    failed = deploy(machine, "small", check=False)

    assert failed.status == Status.NOT_READY
    assert f": {verdict}: " in failed.stderr
    assert f"try: {UNPROVED[PairVerdict(verdict)]}\n" in failed.stderr


def test_b74_halves_that_die_on_a_bare_generate_live_through_deploy_status_probe_and_watch(
    machine: Machine, behaviour: Behave
) -> None:
    """B74: no generation is ever sent to a half; the one that proves it goes through the router."""
    prepare(machine)
    for half in ("prefill", "decode"):
        misbehave(behaviour, half, die_on_bare_generate=True)
    deploy(machine, "small")
    before = [engine(machine, unit) for unit in (PREFILL, DECODE)]

    assert probe(machine).stdout.splitlines()[-1].startswith("ok: ")
    machine.run(("dsv4ctl", "status"), timeout_s=20)

    assert [engine(machine, unit) for unit in (PREFILL, DECODE)] == before
