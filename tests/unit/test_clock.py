"""Waiting: asked at once, asked at the deadline, and no longer."""

from dataclasses import dataclass, field

from dsv4ctl.clock import RealClock, until


@dataclass
class TurnedClock:
    """A clock that a test turns: sleeping costs nothing."""

    at: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.slept.append(seconds)


def test_a_find_at_the_first_look_costs_no_time() -> None:
    clock = TurnedClock()

    assert until(lambda: "found", clock, deadline_s=10, every_s=1) == "found"
    assert clock.slept == []


def test_a_judge_is_asked_once_even_when_the_deadline_is_zero() -> None:
    assert until(lambda: "found", TurnedClock(), deadline_s=0, every_s=1) == "found"


def test_a_find_that_is_there_only_at_the_deadline_counts() -> None:
    clock = TurnedClock()

    assert until(lambda: "late" if clock.at >= 2.5 else None, clock, deadline_s=2.5, every_s=1) == "late"
    assert clock.slept == [1, 1, 0.5]


def test_nothing_found_by_the_deadline_is_none() -> None:
    clock = TurnedClock()

    assert until(lambda: None, clock, deadline_s=3, every_s=1) is None
    assert clock.at == 3


def test_a_find_that_is_false_or_zero_is_a_find() -> None:
    assert until(lambda: 0, TurnedClock(), deadline_s=3, every_s=1) == 0


def test_the_real_clock_goes_forward_and_takes_no_negative_nap() -> None:
    clock = RealClock()
    began = clock.now()

    clock.sleep(-1)
    clock.sleep(0.01)

    assert 0.01 <= clock.now() - began < 5
    assert clock.wall() > 1_700_000_000
