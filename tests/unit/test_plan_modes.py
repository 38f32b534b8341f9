"""Plans of several roles: what is started when, what is stopped before, and every switch from one mode to another."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4ctl import due, modes, plan
from dsv4ctl.free import AwaitPorts
from dsv4ctl.model import ActiveState, HostView, Instance, LoadState, PortView, Release, Role, TransferSpec
from dsv4ctl.steps import Start, StartTogether, Step, Stop, started
from tests import releases
from tests.unit.test_plan import done, instance, release, taken, unit

MODES = tuple(modes.BUILT_IN)
ROUTER, PREFILL, DECODE = "dsv4-router.service", "dsv4-prefill.service", "dsv4-decode.service"


@cache
def asked(mode: str, backend: str = "nixl", context: int = 4096) -> Release:
    """A real release."""
    parts = replace(releases.machine().parts, modules=frozenset({"nixl", "mooncake"}))
    memory = replace(releases.spec().memory, context_length=context)
    spec = releases.spec(mode, transfer=TransferSpec(backend=backend), memory=memory)
    return releases.render(spec, releases.machine(parts=parts))


def serving(made: Release) -> HostView:
    """A host on which a release runs."""
    return done(HostView(), plan.deploy(made, HostView()))


def order(steps: tuple[Step, ...]) -> list[str]:
    """What is stopped and started, in order."""
    found = []
    for step in steps:
        if isinstance(step, Stop):
            found.append(f"stop {step.unit}")
        elif isinstance(step, Start | StartTogether):
            found.append("start " + " + ".join(one.unit for one in started((step,))))
    return found


def test_prefill_and_decode_are_started_side_by_side_and_the_router_after_them() -> None:
    assert order(plan.deploy(asked("pd"), HostView())) == [f"start {PREFILL} + {DECODE}", f"start {ROUTER}"]


def test_a_switch_stops_the_router_first_then_the_decode_then_the_prefill_before_anything_is_started() -> None:
    steps = plan.deploy(asked("single-tp4"), serving(asked("pd")))

    assert order(steps) == [f"stop {ROUTER}", f"stop {DECODE}", f"stop {PREFILL}", "start dsv4-server.service"]


def test_over_nixl_a_half_that_changes_takes_the_other_with_it_and_the_plan_says_why() -> None:
    there = serving(asked("pd"))
    halves = replace(there, running={**there.running, DECODE: "another"})

    steps = plan.deploy(asked("pd"), halves)

    assert order(steps) == [
        *(f"stop {ROUTER}", f"stop {DECODE}", f"stop {PREFILL}"),
        *(f"start {PREFILL} + {DECODE}", f"start {ROUTER}"),
    ]
    reasons = {step.unit: step.reason for step in steps if isinstance(step, Stop)}
    assert reasons[DECODE] == "the configuration changed"
    assert reasons[PREFILL].startswith(f"{DECODE} starts anew, and nixl")
    assert reasons[ROUTER] == f"{DECODE} and {PREFILL} stop: it drains before, and starts after"


def test_over_mooncake_the_other_half_keeps_running_and_the_router_drains_all_the_same() -> None:
    there = serving(asked("pd", "mooncake"))
    halves = replace(there, running={**there.running, DECODE: "another"})

    steps = plan.deploy(asked("pd", "mooncake"), halves)

    assert order(steps) == [f"stop {ROUTER}", f"stop {DECODE}", f"start {DECODE}", f"start {ROUTER}"]


def test_a_router_with_a_server_left_goes_on_and_one_without_any_is_stopped_first() -> None:
    there = serving(asked("dual-tp4"))
    one = replace(there, running={**there.running, "dsv4-server-1.service": "another"})
    both = replace(one, running={**one.running, "dsv4-server-0.service": "another"})

    assert order(plan.deploy(asked("dual-tp4"), one)) == ["stop dsv4-server-1.service", "start dsv4-server-1.service"]
    assert order(plan.deploy(asked("dual-tp4"), both))[0] == f"stop {ROUTER}"
    assert order(plan.deploy(asked("dual-tp4"), both))[-1] == f"start {ROUTER}"


def test_only_the_router_is_touched_when_only_it_changes() -> None:
    there = serving(asked("pd"))

    steps = plan.deploy(asked("pd"), replace(there, running={**there.running, ROUTER: "another"}))

    assert order(steps) == [f"stop {ROUTER}", f"start {ROUTER}"]


@pytest.mark.parametrize("unit_name", [PREFILL, DECODE])
def test_a_half_whose_start_is_under_way_is_followed_and_the_other_left_alone(unit_name: str) -> None:
    there = serving(asked("pd"))
    units = {**there.units, unit_name: replace(there.units[unit_name], active=ActiveState.ACTIVATING)}

    assert order(plan.deploy(asked("pd"), replace(there, units=units))) == [f"start {unit_name}"]


def test_ports_of_what_is_stopped_are_waited_for_before_their_next_owner_starts() -> None:
    view = replace(serving(asked("pd")), ports={30001: taken(30001, ROUTER), 20001: taken(20001, PREFILL)})

    steps = plan.deploy(asked("single-tp4"), view)

    (waits,) = (step for step in steps if isinstance(step, AwaitPorts))
    assert {port for _, port in waits.binds} == {30001, 20001}
    assert steps.index(waits) > max(n for n, step in enumerate(steps) if isinstance(step, Stop))
    assert steps.index(waits) < min(n for n, step in enumerate(steps) if isinstance(step, Start))
    assert waits.reason == f"{ROUTER} and {PREFILL} had them"


def test_a_masked_unit_is_refused_with_what_to_type() -> None:
    masked = unit("dsv4-server.service", ActiveState.INACTIVE, enabled="masked", load=LoadState.MASKED)

    (refused,) = plan.refusals(release(instance()), HostView(units={masked.name: masked}))

    assert (str(refused), refused.hint) == (
        "cannot deploy dsv4-server.service: it is masked, so that nobody starts it",
        "systemctl unmask dsv4-server.service",
    )


def test_a_port_that_our_own_units_will_leave_is_no_refusal() -> None:
    view = replace(serving(asked("pd")), ports={30001: taken(30001, ROUTER), 20001: PortView(port=20001)})

    assert plan.refusals(asked("single-tp4"), view) == ()


def conflicts(view: HostView, made: dict[str, Release], step: Step) -> list[str]:
    """Who runs and holds a port or a GPU of what a step starts."""
    there = {one.unit: one for release_ in made.values() for one in release_.instances}
    running = [there[name] for name in view.running if due.is_up(view.units.get(name)) and name in there]
    return [
        f"{one.unit} starts while {other.unit} runs"
        for one in started((step,))
        for other in running
        if other.unit != one.unit and (set(one.gpus) & set(other.gpus) or {p for _, p in one.ports} & ports(other))
    ]


def ports(one: Instance) -> set[int]:
    return {port for _, port in one.ports}


ASKED = st.tuples(st.sampled_from(MODES), st.sampled_from(["nixl", "mooncake"]), st.sampled_from([4096, 8192]))


@settings(deadline=None)  # the first use of a release renders it
@given(ASKED, ASKED, st.integers(0, 60))
def test_every_switch_gets_there_cut_anywhere_and_nothing_starts_beside_what_holds_its_place(
    before: tuple[str, str, int], after: tuple[str, str, int], cut: int
) -> None:
    was, want = asked(*before), asked(*after)
    view = serving(was)
    for length in (cut, None):
        steps = plan.deploy(want, view)
        for step in steps[:length]:
            assert conflicts(view, {"was": was}, step) == []
            view = done(view, (step,))

    assert plan.deploy(want, view) == ()
    assert {name for name, one in view.units.items() if due.is_up(one)} == {
        "dsv4.target",
        *(one.unit for one in want.instances),
    }


@settings(deadline=None)  # the first use of a release renders it
@given(ASKED, ASKED)
def test_no_worker_is_stopped_under_a_router_that_would_be_left_with_nobody_and_no_prefill_before_its_decode(
    before: tuple[str, str, int], after: tuple[str, str, int]
) -> None:
    was, view = asked(*before), serving(asked(*before))

    for step in plan.deploy(asked(*after), view):
        view = done(view, (step,))
        up = [one for one in was.instances if view.running.get(one.unit) == one.digest]
        roles = {one.role for one in up}
        routers = [one for one in up if one.role is Role.ROUTER]
        assert all({peer.unit for peer in one.peers} & {other.unit for other in up} for one in routers)
        assert not (Role.DECODE in roles and Role.PREFILL not in roles)


@settings(deadline=None)  # the first use of a release renders it
@given(ASKED)
def test_the_same_release_keeps_every_process_whatever_it_is(words: tuple[str, str, int]) -> None:
    assert plan.deploy(asked(*words), serving(asked(*words))) == ()


STATES = st.sampled_from([state for state in ActiveState if state is not ActiveState.MAINTENANCE])


@settings(deadline=None)
@given(st.sampled_from(["nixl", "mooncake"]), st.tuples(STATES, STATES, STATES), st.booleans())
def test_a_pair_in_whatever_state_gets_there_and_a_half_that_loads_is_never_stopped_for_the_other(
    backend: str,
    states: tuple[ActiveState, ActiveState, ActiveState],
    same: bool,  # noqa: FBT001 -- a parameter
) -> None:
    want = asked("pd", backend)
    there = serving(want)
    names = [one.unit for one in want.instances]
    units = {name: replace(there.units[name], active=state) for name, state in zip(names, states, strict=True)}
    runs = {name for name, unit_ in units.items() if unit_.active not in due.DOWN and same}
    view = replace(there, units={**there.units, **units}, running={name: there.running[name] for name in runs})

    steps = plan.deploy(want, view)

    loading = {name for name in (PREFILL, DECODE) if name in runs and units[name].active is ActiveState.ACTIVATING}
    assert loading & {step.unit for step in steps if isinstance(step, Stop)} == set()
    reached = done(view, steps)
    assert plan.deploy(want, reached) == ()
    assert all(reached.units[name].active is ActiveState.ACTIVE for name in names)
