"""The plan: what is asked for against what is there, and why each step is taken."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import due, plan
from dsv4ctl.free import AwaitPorts
from dsv4ctl.model import (
    ActiveState,
    Family,
    Holder,
    HostView,
    Instance,
    Keeper,
    Limits,
    Listener,
    LoadState,
    PortView,
    Release,
    RenderedFile,
    Role,
    Unit,
)
from dsv4ctl.steps import (
    Disable,
    Enable,
    Reach,
    Reload,
    RemoveFile,
    ResetFailed,
    Start,
    StartTogether,
    Step,
    Stop,
    WriteFile,
)

SERVER = "dsv4-server.service"


def instance(digest: str = "aaa", *, role: Role = Role.SERVER, port: int = 30001) -> Instance:
    return Instance(
        name=role, role=role, unit=f"dsv4-{role}.service", argv=("/py", "-m", "sglang.launch_server"), environment=(),
        host="127.0.0.1", port=port, rendezvous_port=port - 10000, tp=4, gpus=(0, 1, 2, 3), gpu_uuids=(), model="/m",
        served_model_name="m", context_length=None, user=None, api_key_file=None, secrets_file=None, limits=Limits(),
        digest=digest,
    )  # fmt: skip


def release(*instances: Instance) -> Release:
    files = [RenderedFile(path=f"/etc/systemd/system/{i.unit}", text=f"unit {i.digest}\n") for i in instances]
    files += [RenderedFile(path=f"/var/lib/dsv4ctl/instances/{i.name}-{i.digest}.json", text="{}\n") for i in instances]
    files += [RenderedFile(path="/etc/systemd/system/dsv4.target", text="target\n")]
    return Release(digest="+".join(i.digest for i in instances), mode="m", instances=instances, files=tuple(files))


def unit(name: str, active: ActiveState, *, enabled: str = "enabled", load: LoadState = LoadState.LOADED) -> Unit:
    return Unit(
        name=name, load=load, active=active, sub="running", enabled=enabled, main_pid=1, cgroup="/dsv4.slice/" + name,
        status_text="", result="exit-code", exit_code="", exit_status=0, restarts=0, since=None, needs_reload=False,
        fragment="",
    )  # fmt: skip


def done(view: HostView, steps: tuple[Step, ...]) -> HostView:
    """What a host looks like after the steps went well."""
    units, files, running = dict(view.units), dict(view.files), dict(view.running)
    for step in steps:
        match step:
            case WriteFile():
                files[step.path] = step.text
            case RemoveFile():
                files.pop(step.path, None)
            case Reload():
                units = {n: replace(u, needs_reload=False) for n, u in units.items()}
                gone = [n for n in units if f"/etc/systemd/system/{n}" not in files and units[n].active in due.DOWN]
                units = {n: u for n, u in units.items() if n not in gone}
            case ResetFailed():
                units[step.unit] = replace(units[step.unit], active=ActiveState.INACTIVE)
            case Stop():
                units[step.unit] = replace(units[step.unit], active=ActiveState.INACTIVE)
                running.pop(step.unit, None)
            case Start() | StartTogether():
                for begun in (step,) if isinstance(step, Start) else step.starts:
                    old = units.get(
                        begun.instance.unit, unit(begun.instance.unit, ActiveState.INACTIVE, enabled="disabled")
                    )
                    units[begun.instance.unit] = replace(old, active=ActiveState.ACTIVE, load=LoadState.LOADED)
                    running[begun.instance.unit] = begun.instance.digest
            case Reach():
                old = units.get(step.unit, unit(step.unit, ActiveState.INACTIVE, enabled="disabled"))
                units[step.unit] = replace(old, active=ActiveState.ACTIVE)
            case Enable():
                old = units.get(step.unit, unit(step.unit, ActiveState.INACTIVE))
                units[step.unit] = replace(old, enabled="enabled")
            case Disable():
                units[step.unit] = replace(units[step.unit], enabled="disabled")
    return HostView(units=units, files=files, running=running, ports=view.ports)


def test_on_an_empty_host_everything_is_written_before_anything_is_started() -> None:
    steps = plan.deploy(release(instance()), HostView())

    kinds = [type(s).__name__ for s in steps]

    assert kinds == ["WriteFile", "WriteFile", "WriteFile", "Reload", "Start", "Reach", "Enable", "Enable"]


def test_deploying_the_same_thing_twice_leaves_nothing_to_do() -> None:
    want = release(instance())

    assert plan.deploy(want, done(HostView(), plan.deploy(want, HostView()))) == ()


def test_a_changed_instance_is_stopped_before_it_is_started() -> None:
    there = done(HostView(), plan.deploy(release(instance("aaa")), HostView()))

    steps = plan.deploy(release(instance("bbb")), there)

    assert [s for s in steps if isinstance(s, Stop | Start)] == [
        Stop(unit=SERVER, reason="the configuration changed"),
        Start(instance=instance("bbb"), reason="the configuration changed"),
    ]


def test_a_start_that_is_under_way_is_followed_and_not_stopped() -> None:
    there = done(HostView(), plan.deploy(release(instance()), HostView()))
    units = {**there.units, SERVER: replace(there.units[SERVER], active=ActiveState.ACTIVATING)}

    steps = plan.deploy(release(instance()), replace(there, units=units))

    assert steps == (Start(instance=instance(), reason="a start of it is under way; follow it"),)


def test_a_role_that_the_mode_no_longer_has_is_stopped_disabled_and_removed() -> None:
    old = instance("ccc", role=Role.DECODE, port=30002)
    there = done(HostView(), plan.deploy(release(instance(), old), HostView()))

    steps = plan.deploy(release(instance()), there)

    assert {type(s) for s in steps if getattr(s, "unit", "") == old.unit} == {Stop, Disable}
    assert any(isinstance(s, RemoveFile) and s.path.endswith(old.unit) for s in steps)


def test_no_change_in_unit_text_means_no_reload() -> None:
    there = done(HostView(), plan.deploy(release(instance()), HostView()))
    units = {**there.units, SERVER: replace(there.units[SERVER], active=ActiveState.INACTIVE)}

    steps = plan.deploy(release(instance()), replace(there, units=units, running={}))

    assert not any(isinstance(s, Reload) for s in steps)


def test_an_operators_deploy_clears_the_failed_state_first_and_says_so() -> None:
    there = done(HostView(), plan.deploy(release(instance()), HostView()))
    units = {**there.units, SERVER: replace(there.units[SERVER], active=ActiveState.FAILED)}

    steps = plan.deploy(release(instance()), replace(there, units=units, running={}))

    reset = next(n for n, s in enumerate(steps) if isinstance(s, ResetFailed))
    assert isinstance(steps[reset + 1], Start)
    assert "this start is yours" in steps[reset].reason


@pytest.mark.parametrize("active", [ActiveState.INACTIVE, ActiveState.ACTIVE])
def test_earlier_starts_never_count_against_a_deploy_but_a_start_under_way_is_left_alone(active: ActiveState) -> None:
    there = done(HostView(), plan.deploy(release(instance()), HostView()))
    units = {**there.units, SERVER: replace(there.units[SERVER], active=active)}
    under_way = {**there.units, SERVER: replace(there.units[SERVER], active=ActiveState.ACTIVATING)}

    steps = plan.deploy(release(instance()), replace(there, units=units, running={}))
    followed = plan.deploy(release(instance()), replace(there, units=under_way))

    kinds = [type(step) for step in steps]
    assert kinds.index(ResetFailed) == kinds.index(Start) - 1
    assert ResetFailed not in [type(step) for step in followed]


def taken(port: int, owner: str) -> PortView:
    listener = Listener(family=Family.IPV4, address="127.0.0.1", port=port, inode=1, cgroup=f"/x/{owner}")
    return PortView(port=port, holders=(Holder(listener=listener, unit=owner),), blocked=f"{owner} listens on it")


def test_a_port_held_by_somebody_else_is_refused_by_name_for_every_job_of_it() -> None:
    view = HostView(ports={30001: taken(30001, "nginx.service"), 20001: taken(20001, "ssh.service")})

    refused = plan.refusals(release(instance()), view)

    assert ["nginx.service" in str(refused[0]), "ssh.service" in str(refused[1])] == [True, True]


def test_a_port_held_by_the_instance_that_will_be_stopped_is_no_refusal() -> None:
    there = done(HostView(), plan.deploy(release(instance("aaa")), HostView()))
    view = replace(there, ports={30001: taken(30001, SERVER)})

    assert plan.refusals(release(instance("bbb")), view) == ()


def test_a_port_that_is_bound_without_a_listener_is_refused() -> None:
    view = HostView(ports={30001: PortView(port=30001, blocked="a socket is bound to it")})

    assert len(plan.refusals(release(instance()), view)) == 1


@pytest.mark.parametrize(
    ("by", "advice"),
    [(Keeper.KNOWN, "end it, or"), (Keeper.UNKNOWN, "ss -tanpe 'sport = :30001'   as root"), (Keeper.NOBODY, "choose")],
)
def test_a_port_that_somebody_keeps_is_refused_with_what_to_type_about_him(by: Keeper, advice: str) -> None:
    view = HostView(ports={30001: PortView(port=30001, blocked="why it cannot be had", kept_by=by)})

    (refused,) = plan.refusals(release(instance()), view)

    assert "why it cannot be had" in str(refused)
    assert refused.hint.startswith(advice)


def test_a_port_that_the_kernel_alone_keeps_is_waited_for_and_refused_to_nobody() -> None:
    """B05: unlike one that is kept by somebody who cannot be named, though neither has a holder."""
    remains = PortView(port=30001, blocked="ended connections are in TIME_WAIT", kept_by=Keeper.KERNEL)
    view = HostView(ports={30001: remains})

    assert plan.refusals(release(instance()), view) == ()
    (waits,) = (s for s in plan.deploy(release(instance()), view) if isinstance(s, AwaitPorts))
    assert (waits.reason, waits.limit_s) == ("ended connections are in TIME_WAIT", 75.0)


def test_teardown_stops_router_first_prefill_after_decode_and_the_target_last() -> None:
    roles = (Role.PREFILL, Role.DECODE, Role.ROUTER)
    instances = tuple(instance("d", role=r, port=30001 + n) for n, r in enumerate(roles))
    there = done(HostView(), plan.deploy(release(*instances), HostView()))

    steps = plan.teardown(there, purge=False)

    stops = [s.unit for s in steps if isinstance(s, Stop)]
    assert stops == ["dsv4-router.service", "dsv4-decode.service", "dsv4-prefill.service", "dsv4.target"]


def test_teardown_stops_units_of_ours_that_no_release_knows() -> None:
    view = HostView(units={"dsv4-old.service": unit("dsv4-old.service", ActiveState.ACTIVE)})

    assert [type(s) for s in plan.teardown(view, purge=False)] == [Stop, ResetFailed]


def test_only_purge_disables_and_removes() -> None:
    there = done(HostView(), plan.deploy(release(instance()), HostView()))

    kept, purged = (plan.teardown(there, purge=p) for p in (False, True))

    assert not any(isinstance(s, Disable | RemoveFile) for s in kept)
    assert {s.path for s in purged if isinstance(s, RemoveFile)} == set(there.files)


SHAPES = st.lists(
    st.tuples(st.sampled_from(list(Role)), st.sampled_from(["aaa", "bbb", "ccc"])), max_size=4, unique_by=lambda t: t[0]
)


def shaped(shape: list[tuple[Role, str]]) -> Release:
    return release(*(instance(d, role=r, port=30001 + n) for n, (r, d) in enumerate(shape)))


@given(SHAPES, SHAPES)
def test_a_plan_carried_out_leaves_nothing_to_do(before: list[tuple[Role, str]], after: list[tuple[Role, str]]) -> None:
    there = done(HostView(), plan.deploy(shaped(before), HostView()))

    reached = done(there, plan.deploy(shaped(after), there))

    assert plan.deploy(shaped(after), reached) == ()


@given(SHAPES, SHAPES, st.integers(0, 40))
def test_a_plan_cut_anywhere_and_made_again_still_gets_there(
    before: list[tuple[Role, str]], after: list[tuple[Role, str]], cut: int
) -> None:
    there = done(HostView(), plan.deploy(shaped(before), HostView()))
    halfway = done(there, plan.deploy(shaped(after), there)[:cut])

    reached = done(halfway, plan.deploy(shaped(after), halfway))

    assert plan.deploy(shaped(after), reached) == ()
    assert set(reached.running) == {i.unit for i in shaped(after).instances}


@given(SHAPES, st.booleans())
def test_teardown_leaves_no_unit_up_whatever_was_deployed(shape: list[tuple[Role, str]], purge: bool) -> None:  # noqa: FBT001
    there = done(HostView(), plan.deploy(shaped(shape), HostView()))

    reached = done(there, plan.teardown(there, purge=purge))

    assert not [u for u in reached.units.values() if u.name.endswith(".service") and due.is_up(u)]
