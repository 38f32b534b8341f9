"""How an instance stands: every pair of what systemd says and what the supervisor said last."""

from dataclasses import replace

import pytest

from dsv4ctl import standing
from dsv4ctl.model import ActiveState, LoadState, Phase, RunState, Unit
from dsv4ctl.standing import Standing

UNIT = Unit(
    name="dsv4-server.service", load=LoadState.LOADED, active=ActiveState.ACTIVE, sub="running", enabled="enabled",
    main_pid=7, cgroup="/x", status_text="ready: m on 127.0.0.1:30001", result="success", exit_code="", exit_status=0,
    restarts=0, since=1.0, needs_reload=False, fragment="",
)  # fmt: skip
SAID = RunState(
    name="server", digest="d", phase=Phase.READY, words="ready: m", since=1.0, started_at=1.0, pid=7, advice="look"
)
WAITS = replace(UNIT, active=ActiveState.ACTIVATING, sub="auto-restart", main_pid=0, status_text="")
DOWN = replace(UNIT, active=ActiveState.INACTIVE, sub="dead", main_pid=0, status_text="")


def test_a_running_supervisor_speaks_for_itself() -> None:
    assert standing.of(UNIT, SAID) == Standing("active", "ready: m on 127.0.0.1:30001")


def test_a_start_under_way_is_starting() -> None:
    unit = replace(UNIT, active=ActiveState.ACTIVATING, sub="start", status_text="loading weights 3/46")

    assert standing.of(unit, None) == Standing("starting", "loading weights 3/46")


def test_a_supervisor_that_was_killed_is_not_ready_any_more() -> None:
    unit = replace(WAITS, result="signal", exit_code="killed", exit_status=9)

    found = standing.of(unit, SAID)

    assert found.state == "restarting"
    assert found.words == (
        "the supervisor ended (killed with status 9) while it said 'ready: m'; systemd starts it again"
    )


def test_a_failed_start_that_deploy_stopped_is_failed_and_not_inactive() -> None:
    said = replace(SAID, phase=Phase.FAILED, words="stalled in weights 3/46 for 900 s")

    assert standing.of(DOWN, said) == Standing("failed", "stalled in weights 3/46 for 900 s", "look")


@pytest.mark.parametrize("status", standing.SYSTEMD_FAILED)
def test_a_start_that_systemd_could_not_make_tells_systemds_reason_and_no_old_goodbye(status: int) -> None:
    unit = replace(DOWN, result="exit-code", exit_code="exited", exit_status=status)
    said = replace(SAID, phase=Phase.STOPPED, words="stopped: the engine ended with exit status 0")

    found = standing.of(unit, said)

    assert found.state == "failed"
    assert f"(status {status})" in found.words
    assert "stopped" not in found.words
    assert found.advice


def test_a_clean_stop_says_goodbye() -> None:
    said = replace(SAID, phase=Phase.STOPPED, words="stopped: the engine ended with exit status 0")

    assert standing.of(DOWN, said) == Standing("inactive", "stopped: the engine ended with exit status 0")


def test_a_unit_that_never_ran_is_not_started() -> None:
    assert standing.of(DOWN, None) == Standing("inactive", "not started")


def test_a_unit_that_is_down_says_no_goodbye_of_an_earlier_instance_of_its_name() -> None:
    said = replace(SAID, phase=Phase.STOPPED, words="stopped: the engine ended with exit status 0")

    assert standing.own(said, "another", DOWN) is None
    assert standing.own(said, said.digest, DOWN) == said
    assert standing.own(said, "another", UNIT) == said, "it is the earlier instance that still runs"
