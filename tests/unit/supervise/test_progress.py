"""How far a start has come, and what is left of it."""

from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import starts
from dsv4ctl.model import Phase
from dsv4ctl.starts import PastStart
from dsv4ctl.supervise import progress

PAST = PastStart(at=0.0, digest="aaa", seconds={"starting": 10, "weights": 100, "graphs": 40, "warmup": 2})


def test_a_phase_is_entered_once_and_never_left_backwards() -> None:
    start = progress.entered(progress.begun(0.0), Phase.GRAPHS, 10.0)
    assert progress.entered(start, Phase.WEIGHTS, 20.0) == start
    assert progress.entered(start, Phase.GRAPHS, 20.0) == start


def test_a_bar_that_is_only_redrawn_is_no_progress() -> None:
    start = progress.counted(progress.begun(0.0), Phase.WEIGHTS, (3, 46), 10.0)
    for now in range(11, 911):
        start = progress.counted(start, Phase.WEIGHTS, (3, 46), float(now))
    assert progress.stalled_for(start, 910.0) == 900.0


def test_a_second_bar_of_the_same_kind_is_progress() -> None:
    start = progress.counted(progress.begun(0.0), Phase.GRAPHS, (36, 36), 10.0)
    start = progress.counted(start, Phase.GRAPHS, (1, 36), 20.0)
    assert (start.done, progress.stalled_for(start, 20.0)) == (1, 0.0)


def test_a_late_rank_does_not_disturb_the_count() -> None:
    start = progress.counted(progress.begun(0.0), Phase.GRAPHS, (5, 36), 10.0)
    assert progress.counted(start, Phase.WEIGHTS, (46, 46), 11.0) == start


def test_the_time_left_goes_by_todays_speed_where_there_is_a_count_and_by_earlier_starts_after_that() -> None:
    start = progress.counted(progress.entered(progress.begun(0.0), Phase.WEIGHTS, 10.0), Phase.WEIGHTS, (25, 50), 80.0)
    assert progress.left_s(start, (PAST,), "aaa", 80.0) == 70 + 40 + 2


def test_a_phase_that_takes_much_longer_than_before_is_given_no_time() -> None:
    start = progress.entered(progress.begun(0.0), Phase.WEIGHTS, 10.0)
    assert progress.left_s(start, (PAST,), "aaa", 10 + 150.0) == 40 + 2
    assert progress.left_s(start, (PAST,), "aaa", 10 + 250.0) is None


def test_without_a_count_the_time_in_the_phase_is_what_counts() -> None:
    start = progress.entered(progress.begun(0.0), Phase.WEIGHTS, 10.0)
    assert progress.left_s(start, (PAST,), "aaa", 40.0) == 70 + 40 + 2


def test_without_an_earlier_start_no_time_is_promised() -> None:
    assert progress.left_s(progress.begun(0.0), (), "aaa", 5.0) is None


def test_a_start_that_takes_longer_than_all_before_promises_nothing() -> None:
    start = progress.entered(progress.begun(0.0), Phase.PROOF, 10.0)
    assert progress.left_s(start, (PAST,), "aaa", 500.0) is None


def test_starts_of_the_same_digest_are_compared_when_there_are_some() -> None:
    other = PastStart(at=1.0, digest="bbb", seconds={"starting": 1000})
    assert progress.left_s(progress.begun(0.0), (other, PAST), "aaa", 0.0) == 152
    assert progress.left_s(progress.begun(0.0), (other,), "aaa", 0.0) == 1000


def test_starts_come_back_from_their_file_and_the_file_stays_small() -> None:
    written = [PastStart(at=float(n), digest="aaa", seconds={"weights": float(n)}) for n in range(100)]
    kept = starts.parse(starts.dump(written))
    assert list(kept) == written[-starts.KEPT :]


@given(st.text())
def test_a_damaged_file_is_no_reason_to_fail(text: str) -> None:
    assert starts.parse(text) == ()


def test_a_cut_line_loses_only_itself() -> None:
    text = starts.dump([PAST])
    assert starts.parse(text + text[:20]) == (PAST,)
    assert starts.parse('{"at": 1, "digest": "a", "seconds": []}\n' + text) == (PAST,)


def test_the_phases_of_a_start_are_remembered_with_their_seconds() -> None:
    start = progress.entered(progress.entered(progress.begun(5.0), Phase.WEIGHTS, 15.0), Phase.PROOF, 75.0)
    assert progress.finished(start, 76.0) == ((Phase.STARTING, 10.0), (Phase.WEIGHTS, 60.0), (Phase.PROOF, 1.0))
