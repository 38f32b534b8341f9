"""When a stopping engine is asked, told and forced."""

from dataclasses import replace

from dsv4ctl.model import Limits
from dsv4ctl.supervise import drain
from dsv4ctl.supervise.drain import Drain, Load

LIMITS = Limits(drain_s=120, engine_stop_s=80)


def test_requests_have_the_drain_limit_and_the_engine_its_own_after_that() -> None:
    plan = drain.begun(LIMITS, 1000.0, hurried=False)
    assert (plan.abort_at, plan.kill_at) == (1120.0, 1200.0)


def test_an_engine_without_requests_has_its_own_limit_only() -> None:
    plan = drain.carries(drain.begun(LIMITS, 1000.0, hurried=False), Load(0), 1010.0)
    plan = drain.carries(plan, Load(0), 1020.0)
    assert plan.kill_at == 1090.0


def test_a_request_that_came_after_the_last_one_had_gone_is_waited_for() -> None:
    plan = drain.carries(drain.begun(LIMITS, 1000.0, hurried=False), Load(0), 1010.0)
    assert drain.carries(plan, Load(2), 1011.0).kill_at == 1200.0


def test_an_engine_that_does_not_tell_changes_nothing() -> None:
    plan = drain.begun(LIMITS, 1000.0, hurried=False)
    assert drain.carries(plan, Load(None), 1010.0) == plan


def test_a_second_signal_ends_the_wait_for_requests_and_a_third_the_wait_for_the_engine() -> None:
    plan = drain.hurry(drain.begun(LIMITS, 1000.0, hurried=False), 1010.0)
    assert (plan.abort_at, plan.kill_at) == (1010.0, 1090.0)
    assert drain.hurry(plan, 1015.0).kill_at == 1010.0


def test_a_hurried_stop_aborts_at_once() -> None:
    assert drain.begun(LIMITS, 1000.0, hurried=True).abort_at == 1000.0


def test_the_last_request_ending_after_the_limit_gives_no_more_time() -> None:
    plan = drain.carries(drain.begun(LIMITS, 1000.0, hurried=False), Load(0), 1150.0)
    assert plan.kill_at == 1200.0


# ---- behind a router -------------------------------------------------------------------------------------------------


def held(*, sends: bool) -> Drain:
    """The drain of a prefill that has nothing in hand, one second after it began."""
    plan = drain.routed(drain.begun(LIMITS, 1000.0, hurried=False, holds=True), 1000.0, sends=sends)
    return drain.carries(plan, Load(0), 1000.5)


def test_a_prefill_gets_no_term_while_a_decode_pulls_from_it() -> None:
    plan = held(sends=False)
    assert drain.is_due(plan, 1000.5)
    pulled = drain.carries(plan, Load(1), 1001.0)
    assert not drain.is_due(pulled, 1119.0)
    assert drain.is_due(drain.carries(pulled, Load(0), 1050.0), 1050.0)


def test_an_engine_gets_no_term_while_its_router_sends_and_until_what_was_sent_has_arrived() -> None:
    plan = held(sends=True)
    assert not drain.is_due(plan, 1004.0)
    out = drain.routed(plan, 1004.0, sends=False)
    assert not drain.is_due(out, 1004.9)
    assert drain.is_due(out, 1005.0)
    assert not drain.is_due(drain.routed(out, 1004.5, sends=True), 1005.0)


def test_a_router_that_goes_on_sending_is_not_waited_for() -> None:
    plan = held(sends=True)
    assert not drain.is_due(plan, 1005.9)
    assert drain.is_due(plan, 1006.0)


def test_an_engine_that_cannot_tell_what_it_carries_is_told_to_stop_once_nothing_more_comes() -> None:
    plan = drain.carries(held(sends=True), Load(None, tells=False), 1001.0)
    assert not drain.is_due(plan, 1002.0)
    assert drain.is_due(drain.routed(plan, 1002.0, sends=False), 1003.0)


def test_at_the_limit_an_engine_lets_go_of_its_requests_and_is_told_to_stop_then_or_5_s_later() -> None:
    plan = drain.carries(held(sends=False), Load(3), 1100.0)
    assert not drain.is_due(plan, 1124.9)
    assert drain.is_due(drain.carries(plan, Load(0), 1120.5), 1120.5)
    assert drain.is_due(plan, 1125.0)
    assert drain.termed(plan, 1125.0).kill_at == 1200.0


def test_an_engine_with_little_time_of_its_own_is_told_to_stop_within_half_of_it() -> None:
    plan = drain.begun(replace(LIMITS, engine_stop_s=2), 1000.0, hurried=True, holds=True)
    assert drain.is_due(plan, 1001.0)


def test_an_idle_engine_has_its_own_time_from_the_term_that_was_held_back() -> None:
    assert drain.termed(held(sends=True), 1006.0).kill_at == 1086.0


def test_a_hurried_stop_of_a_prefill_is_held_back_only_until_it_has_let_go_of_its_requests() -> None:
    plan = drain.begun(LIMITS, 1000.0, hurried=True, holds=True)
    plan = drain.carries(drain.routed(plan, 1000.0, sends=False), Load(2), 1000.0)
    assert (plan.abort_at, drain.is_due(plan, 1000.0)) == (1000.0, False)
    assert drain.is_due(drain.carries(plan, Load(0), 1000.5), 1000.5)
    assert drain.is_due(plan, 1005.0)
