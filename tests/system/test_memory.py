"""The memory plan at work on a real systemd, with the stand-in engine on stand-in GPUs."""

import json
from typing import Any

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, UNIT, deploy, prop, show

MARKS = "var/lib/dsv4ctl/memory"


def unit_text(machine: Machine) -> str:
    return " ".join((machine.root / f"etc/systemd/system/{UNIT}").read_text().replace("\\\n", " ").split())


def status(machine: Machine, *words: str) -> str:
    return machine.run(("dsv4ctl", "status", *words), timeout_s=30).stdout


def planned(machine: Machine, *words: str) -> dict[str, Any]:
    done = machine.run(("dsv4ctl", "memory", "--port", str(PORT), "--json", *words), timeout_s=30)
    (one,) = json.loads(done.stdout)["plans"]
    assert isinstance(one, dict)
    return one


def kinds(plan: dict[str, Any], name: str) -> set[str]:
    return {figure["kind"] for figure in plan["figures"] if figure["name"] == name}


def test_deploy_takes_the_recommended_fraction_and_status_holds_the_report_against_the_plan(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **QUICK)

    told = machine.run(("dsv4ctl", "plan", "--port", str(PORT)), timeout_s=30, check=False).stdout
    deploy(machine)

    assert "memory of server: weights 39.3 GiB, KV 34.0 GiB = 4.77 M tokens (4 of 1048576 (1M) at once)" in told
    assert "mem-fraction-static 0.78 (auto): fits" in told
    assert "--mem-fraction-static 0.78" in unit_text(machine)
    assert f"{UNIT}: planned 4.77 M tokens, engine reports 4.77 M, +0.0 %" in status(machine)
    row = json.loads(status(machine, "--json"))["rows"][0]
    assert row["memory"].startswith("planned 4.77 M tokens")


def test_what_an_engine_took_is_kept_and_is_the_next_plans_measured_value(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    before = planned(machine)
    deploy(machine)

    after = planned(machine)

    (file,) = (machine.root / MARKS).glob("*.json")
    mark = json.loads(file.read_text())
    assert mark["key"]["engine_version"] == "0.5.23"
    assert mark["reported"]["weights_bytes"] == pytest.approx(39.29 * 1024**3)
    assert mark["reported"]["free_at_start_bytes"] == 94 * 1024**3
    assert (before["from_mark"], after["from_mark"]) == (False, True)
    assert (kinds(before, "weights"), kinds(after, "weights")) == ({"estimate"}, {"measured"})
    assert kinds(after, "decode graphs") == {"measured"}
    assert after["tokens"] == pytest.approx(before["tokens"], rel=0.001)


def test_a_deploy_by_what_was_measured_changes_nothing(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)

    assert "nothing to do" in deploy(machine).stdout


def test_a_config_that_cannot_fit_is_refused_before_anything_is_stopped(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    (pid,) = show(machine, "MainPID")

    refused = deploy(machine, "--mem-fraction-static", "0.3", check=False)

    assert refused.status == Status.USAGE
    assert "mem-fraction-static 0.3 is below the weights: they take 39.3 of 94.0 GiB" in refused.stderr
    assert "try: dsv4ctl deploy --mem-fraction-static 0." in refused.stderr
    assert (prop(machine, "MainPID"), prop(machine, "ActiveState")) == (pid, "active")


def test_a_plan_of_what_cannot_fit_says_so_in_its_json_and_its_status(machine: Machine) -> None:
    told = machine.run(
        ("dsv4ctl", "plan", "--context-length", "2M", "--port", str(PORT), "--json"), timeout_s=30, check=False
    )

    assert told.status == Status.USAGE
    assert any("is above the model's 1048576 (1M)" in refusal for refusal in json.loads(told.stdout)["refusals"])


def test_an_engine_that_is_up_and_cannot_hold_one_request_of_the_context_fails_the_deploy(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, **QUICK)

    # The planner does not know the bytes of a bfloat16 cache, so nothing can be refused beforehand.
    failed = deploy(
        machine,
        *("--kv-cache-dtype", "bfloat16", "--context-length", "128k", "--max-total-tokens", "64k"),
        check=False,
    )

    assert failed.status == Status.NOT_READY
    assert (
        "cannot serve a context of 131072 (128k): dsv4-server.service is up, but its KV pool holds 65536"
        in failed.stderr
    )
    assert failed.stderr.splitlines()[-1] == "nothing serves now"
    assert prop(machine, "ActiveState") == "inactive"


def test_what_the_planner_does_not_know_is_left_to_the_engine_and_said(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)

    told = machine.run(
        ("dsv4ctl", "plan", "--port", str(PORT), "--kv-cache-dtype", "bfloat16"), timeout_s=30, check=False
    ).stdout

    assert "memory of server: cannot be planned: the planner knows the bytes of kv_cache_dtype fp8_e4m3 only" in told
    assert "mem-fraction-static is left to the engine" in told
    assert "--mem-fraction-static" not in told
