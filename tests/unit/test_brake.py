"""Who may start and who is parked, over hours that nobody waits for; what a pause and the brake are called."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import brake, maintenance, pausing, record
from dsv4ctl.model import Failure, Limits, Pause, Tally
from dsv4ctl.problems import Busy, Problem
from dsv4ctl.store import Paths

NOON = 1_795_953_600.0
HOUR = 3600.0
LIMITS = Limits(starts=4, window_s=7200)


def crash(tally: Tally, at: float, words: str = "the engine died") -> Tally:
    return brake.failed(brake.begun(tally, at), words, at)


def test_so_many_starts_are_given_and_the_next_is_refused_with_the_cause() -> None:
    tally = Tally()
    for start in range(4):
        assert brake.verdict({"decode": tally}, LIMITS, NOON + start) == ""
        tally = crash(tally, NOON + start)

    why = brake.verdict({"decode": tally}, LIMITS, NOON + 5)

    assert why == "4 starts failed within 2h on this host; the last, of decode: the engine died"


def test_the_starts_of_all_roles_count_together_and_are_told_apart() -> None:
    one = crash(crash(Tally(), NOON), NOON + 2)
    two = crash(crash(Tally(), NOON + 1), NOON + 3, "a GPU fell off the bus")

    why = brake.verdict({"decode": one, "prefill": two}, LIMITS, NOON + 4)

    assert why == (
        "4 starts failed within 2h on this host (decode 2, prefill 2); the last, of prefill: a GPU fell off the bus"
    )


def test_failures_that_are_farther_apart_than_the_window_never_park() -> None:
    tally = Tally()
    for day in range(100):
        assert brake.verdict({"decode": tally}, LIMITS, NOON + day * HOUR) == ""
        tally = crash(tally, NOON + day * HOUR)


def test_a_start_that_was_stopped_on_request_or_is_under_way_does_not_count() -> None:
    tally = Tally()
    for restart in range(50):
        tally = brake.stopped(brake.begun(tally, NOON + restart))
    assert brake.verdict({"decode": brake.begun(tally, NOON + 60)}, LIMITS, NOON + 60) == ""


def test_a_start_that_left_no_end_counts_for_a_power_cut_leaves_none() -> None:
    tally = Tally()
    for boot in range(5):
        tally = brake.begun(tally, NOON + boot)

    assert "4 starts failed" in brake.verdict({"server": tally}, LIMITS, NOON + 5)
    assert "killed, or the host went down" in tally.failed[-1].words


def test_a_clock_that_was_set_back_hides_no_failure() -> None:
    tally = Tally()
    for start in range(4):
        tally = crash(tally, NOON + 365 * 24 * HOUR + start)

    assert brake.verdict({"server": tally}, LIMITS, NOON)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 15), (1, 15), (2, 27), (3, 50), (4, 91), (5, 165), (6, 300), (100, 300)]
)
def test_each_failure_lengthens_the_wait_before_a_restart_by_the_same_factor(failures: int, seconds: int) -> None:
    """The figures that systemd 254 comes to with RestartSec=15, RestartSteps=5 and RestartMaxDelaySec=300."""
    assert round(brake.restart_delay_s(failures, Limits())) == seconds


@pytest.mark.parametrize("limits", [Limits(restart_s=300, restart_max_s=300), Limits(restart_s=0)])
def test_a_wait_that_shall_not_grow_does_not(limits: Limits) -> None:
    assert {brake.restart_delay_s(failures, limits) for failures in range(10)} == {limits.restart_s}


@given(st.integers(0, 20), st.integers(0, 600), st.integers(0, 3600), st.integers(1, 20))
def test_a_wait_before_a_restart_never_shrinks_and_stays_within_its_limits(
    failures: int, restart_s: int, more_s: int, starts: int
) -> None:
    limits = Limits(restart_s=restart_s, restart_max_s=restart_s + more_s, starts=starts)
    now, then = (brake.restart_delay_s(count, limits) for count in (failures, failures + 1))
    assert limits.restart_s <= now <= then <= limits.restart_max_s


def test_what_systemd_has_waited_counts_and_nobody_waits_twice() -> None:
    tally = crash(crash(crash(Tally(), NOON - 400), NOON - 200), NOON)
    owed = [brake.owed_s(tally, Limits(), NOON + gone_s) for gone_s in (15, 30, 49, 60)]
    assert [round(one) for one in owed] == [35, 20, 1, 0]


def test_a_first_failure_costs_no_more_than_systemd_has_waited() -> None:
    assert brake.owed_s(crash(Tally(), NOON), Limits(), NOON + 15) == 0
    assert brake.owed_s(Tally(), Limits(), NOON) == 0


def test_a_start_that_comes_before_systemd_would_restart_is_somebody_s_own_and_waits_for_nothing() -> None:
    tally = crash(crash(Tally(), NOON - 60), NOON)
    assert brake.owed_s(tally, Limits(), NOON + 3) == 0
    assert brake.owed_s(tally, Limits(), NOON - 3600) == 0, "nor does one after the clock was set back"


def test_failures_of_long_ago_slow_nothing_down() -> None:
    tally = crash(crash(crash(Tally(), NOON - 9 * HOUR), NOON - 8 * HOUR), NOON)
    assert brake.owed_s(tally, Limits(), NOON + 16) == 0


def test_a_supervisor_that_left_no_word_slows_its_restart_down_as_a_failure_does() -> None:
    tally = brake.begun(crash(crash(Tally(), NOON - 60), NOON - 30), NOON)
    left_s = brake.owed_s(tally, Limits(), NOON + 500)

    assert round(left_s) == 50 - 15
    assert brake.owed_words(tally, Limits(), left_s, NOON + 500).startswith("waiting 35s, until ")
    assert "3 starts failed within 4h; the last: it left no word" in brake.owed_words(tally, Limits(), 1, NOON)


def test_how_near_the_brake_is_can_be_said() -> None:
    assert brake.summary({"server": Tally()}, [LIMITS], NOON) == ""
    assert brake.summary({"server": crash(Tally(), NOON)}, [LIMITS], NOON + 1) == (
        "1 of 4 starts failed within 2h; the next one after 4 is parked"
    )


def test_a_tally_keeps_no_more_than_it_needs() -> None:
    tally = Tally()
    for start in range(1000):
        tally = crash(tally, NOON + start)
    assert len(tally.failed) == brake.KEPT > 100


def test_a_pause_ends_by_itself() -> None:
    pause = Pause(who="alice", reason="a fan", since=NOON, until=NOON + 2 * HOUR)
    assert not brake.is_over(pause, NOON + 2 * HOUR - 1)
    assert brake.is_over(pause, NOON + 2 * HOUR)


def test_a_pause_says_until_when_who_and_why() -> None:
    pause = Pause(who="alice", reason="a fan is swapped", since=NOON, until=NOON + 90)
    days = replace(pause, until=NOON + 72 * HOUR)

    assert brake.pause_words(pause, NOON) == f"paused until {brake.moment(NOON + 90, NOON)} by alice: a fan is swapped"
    assert len(brake.moment(NOON + 90, NOON)) == len("12:01:30")
    assert len(brake.moment(days.until, NOON)) == len("2026-12-02 12:00:00")


def test_a_second_pause_is_refused_with_who_why_and_until_and_what_to_type(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    first = Pause(who="alice", reason="a fan is swapped", since=NOON, until=NOON + 2 * HOUR)
    maintenance.keep_pause(paths, first)

    with pytest.raises(Busy) as refused:
        pausing.require_none(maintenance.lasting(paths.pause, NOON + 60), NOON + 60)

    assert f"cannot pause: {brake.pause_words(first, NOON + 60)}; " in str(refused.value)
    assert "dsv4ctl pause --replace" in refused.value.hint
    assert "dsv4ctl resume" in refused.value.hint


def test_a_pause_that_has_ended_is_in_nobody_s_way(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    maintenance.keep_pause(paths, Pause(who="alice", reason="a fan", since=NOON, until=NOON + 60))

    pausing.require_none(maintenance.lasting(paths.pause, NOON + 60), NOON + 60)


@given(
    st.builds(
        Tally,
        open_since=st.none() | st.floats(0, 2e9),
        failed=st.lists(st.builds(Failure, at=st.floats(0, 2e9), words=st.text()), max_size=5).map(tuple),
        parked=st.none() | st.builds(Failure, at=st.floats(0, 2e9), words=st.text()),
    )
)
def test_a_tally_comes_back_from_its_file_as_it_was(tally: Tally) -> None:
    assert record.load(record.dump(tally), Tally) == tally


@pytest.mark.parametrize("text", ["", "{", "[]", '{"failed": 3}', '{"parked": {"at": "noon", "words": ""}}'])
def test_a_damaged_tally_is_a_problem(text: str) -> None:
    with pytest.raises(Problem, match="tally"):
        record.load(text, Tally)


@pytest.mark.parametrize(
    ("typed", "way"),
    [
        ("dsv4ctl rollback", "dsv4ctl rollback --resume"),
        ("dsv4ctl rollback 2 --reason 'too slow'", "dsv4ctl rollback --resume 2 --reason 'too slow'"),
        ("__main__.py deploy --mode pd", "dsv4ctl deploy --resume --mode pd"),
        ("dsv4ctl plan --out /root/plan.json", "dsv4ctl deploy --resume …"),
        ("pytest", "dsv4ctl deploy --resume …"),
    ],
)
def test_the_way_past_a_pause_is_the_command_that_was_typed(typed: str, way: str) -> None:
    assert brake.way_past(typed) == way
