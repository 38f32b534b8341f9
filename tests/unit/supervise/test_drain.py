"""When a stopping engine is asked, told and forced."""

from dsv4ctl.model import Limits
from dsv4ctl.supervise import drain

LIMITS = Limits(drain_s=120, engine_stop_s=80)


def test_requests_have_the_drain_limit_and_the_engine_its_own_after_that() -> None:
    plan = drain.begun(LIMITS, 1000.0, hurried=False)
    assert (plan.abort_at, plan.kill_at) == (1120.0, 1200.0)


def test_an_engine_without_requests_has_its_own_limit_only() -> None:
    plan = drain.carries(drain.begun(LIMITS, 1000.0, hurried=False), 0, 1010.0)
    plan = drain.carries(plan, 0, 1020.0)
    assert plan.kill_at == 1090.0


def test_a_request_that_came_after_the_last_one_had_gone_is_waited_for() -> None:
    plan = drain.carries(drain.begun(LIMITS, 1000.0, hurried=False), 0, 1010.0)
    assert drain.carries(plan, 2, 1011.0).kill_at == 1200.0


def test_an_engine_that_does_not_tell_changes_nothing() -> None:
    plan = drain.begun(LIMITS, 1000.0, hurried=False)
    assert drain.carries(plan, None, 1010.0) == plan


def test_a_second_signal_ends_the_wait_for_requests_and_a_third_the_wait_for_the_engine() -> None:
    plan = drain.hurry(drain.begun(LIMITS, 1000.0, hurried=False), 1010.0)
    assert (plan.abort_at, plan.kill_at) == (1010.0, 1090.0)
    assert drain.hurry(plan, 1015.0).kill_at == 1010.0


def test_a_hurried_stop_aborts_at_once() -> None:
    assert drain.begun(LIMITS, 1000.0, hurried=True).abort_at == 1000.0


def test_the_last_request_ending_after_the_limit_gives_no_more_time() -> None:
    plan = drain.carries(drain.begun(LIMITS, 1000.0, hurried=False), 0, 1150.0)
    assert plan.kill_at == 1200.0
