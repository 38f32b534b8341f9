"""What `resume` starts, and what stays down; what a deploy does about a pause and about the brake."""

from dataclasses import replace

from dsv4ctl import plan, screen_steps
from dsv4ctl.model import ActiveState, Failure, HostView, LoadState, Pause, Release, Tally, Unit
from dsv4ctl.steps import EndPause, ReleaseBrake, Step, Stop, started
from tests import releases

PAUSE = Pause(who="alice", reason="a fan is swapped", since=1.0, until=2.0)
PARKED = Tally(parked=Failure(at=1.0, words="6 starts failed"))
PAIR = releases.render(releases.spec("pd"))


def unit(name: str) -> Unit:
    return Unit(
        name=name, load=LoadState.LOADED, active=ActiveState.ACTIVE, sub="running", enabled="enabled", main_pid=1,
        cgroup="", status_text="", result="success", exit_code="", exit_status=0, restarts=0, since=None,
        needs_reload=False, fragment="",
    )  # fmt: skip


def serving(release: Release) -> HostView:
    """A host that serves the release, with nothing left to do."""
    names = ("dsv4.target", *(one.unit for one in release.instances))
    return HostView(
        units={name: unit(name) for name in names},
        files={file.path: file.text for file in release.files},
        running={one.unit: one.digest for one in release.instances},
    )


def lines(steps: tuple[Step, ...]) -> list[str]:
    return [screen_steps.step_line(step) for step in steps]


def test_nothing_is_to_be_resumed_on_a_host_that_is_not_held() -> None:
    assert plan.resume(PAIR.instances, serving(PAIR)) == ()


def test_a_pause_is_ended_and_what_runs_is_left_alone() -> None:
    steps = plan.resume(PAIR.instances, replace(serving(PAIR), pause=PAUSE))
    assert lines(steps) == ["end the pause: alice asked for it: a fan is swapped"]


def test_what_died_in_a_pause_is_stopped_within_it_and_started_after_it() -> None:
    view = replace(serving(PAIR), pause=PAUSE, idle=frozenset({"dsv4-decode.service", "dsv4-router.service"}))
    steps = plan.resume(PAIR.instances, view)
    at = [type(step) for step in steps].index(EndPause)
    assert [step.unit for step in steps[:at] if isinstance(step, Stop)] == [
        "dsv4-router.service", "dsv4-decode.service",
    ]  # fmt: skip
    assert [one.name for one in started(steps[at:])] == ["decode", "router"]


def test_what_is_parked_is_started_and_what_was_stopped_is_not() -> None:
    view = serving(PAIR)
    down = {name: replace(unit, active=ActiveState.FAILED, main_pid=0) for name, unit in view.units.items()}
    steps = plan.resume(PAIR.instances, replace(view, units=down, tallies={"prefill": PARKED, "router": Tally()}))
    assert isinstance(steps[0], ReleaseBrake)
    assert "release the restart brake: prefill is parked" in lines(steps)
    assert [one.name for one in started(steps)] == ["prefill"]


def test_a_deploy_starts_what_the_pause_has_kept_down_although_its_unit_is_active() -> None:
    view = replace(serving(PAIR), pause=PAUSE, idle=frozenset({"dsv4-decode.service"}))
    steps = plan.deploy(PAIR, view)
    named = [type(step).__name__ for step in steps]
    assert named.index("Stop") < named.index("EndPause") < named.index("Start")


def test_a_deploy_lets_the_brake_go_only_for_a_start() -> None:
    failed = {"decode": Tally(failed=(Failure(at=1.0, words="died"),))}
    assert plan.deploy(PAIR, replace(serving(PAIR), tallies=failed)) == ()
    fresh = HostView(units={}, tallies=failed)
    assert "release the restart brake: earlier starts shall not count" in lines(plan.deploy(PAIR, fresh))
