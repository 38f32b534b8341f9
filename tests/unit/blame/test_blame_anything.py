"""Arbitrary forests, sockets, cgroups and GPU lists: nobody innocent is ever in the set, and no stray is missed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4ctl.blame import Request, Scene, blame
from dsv4ctl.model import Process
from tests.unit.blame.forests import NET_NAMESPACE, PID_NAMESPACE, VENV, ask, holds, listens, process

CONTAINER = f"/system.slice/docker-{'ab' * 32}.scope"
CGROUPS = (
    "/user.slice/user-0.slice/session-3.scope", "/user.slice/user-0.slice/session-4.scope", "/",
    "/system.slice/run-u7.service", "/system.slice/nginx.service", "/system.slice/ssh.service",
    "/dsv4.slice/dsv4-server.service", CONTAINER,
    "/user.slice/user-1000.slice/user@1000.service/app.slice/notebook.service",
)  # fmt: skip
COMMS = (*("python3", "bash", "sglang::schedul", "nginx") * 6, "sshd", "docker-proxy", "systemd")
NEVER = frozenset({"sshd", "docker-proxy", "systemd"})
OURS = frozenset({"dsv4-server.service"})


@st.composite
def forests(draw: st.DrawFn) -> Scene:
    """Up to sixteen processes, each the child of an earlier one, in groups, sessions and cgroups of whatever kind."""
    found = {1: process(1, 0, session=1, comm="systemd", cgroup="/init.scope")}
    for pid in range(2, draw(st.integers(3, 17))):
        parent = found[draw(st.sampled_from(sorted(found)))]
        session, group = draw(st.sampled_from([(pid, pid), (parent.session, pid), (parent.session, parent.group)]))
        # A leader that has ended: its number stays with those it led.
        if draw(st.integers(0, 9)) == 0:
            session, group = draw(st.sampled_from([(900, 900), (parent.session, 901)]))
        kernel = draw(st.integers(0, 19)) == 0
        found[pid] = process(
            pid, parent.pid, session=session, group=group, uid=draw(st.sampled_from([0, 0, 1000])),
            comm=draw(st.sampled_from(COMMS)), kernel=kernel,
            # The kernel's own threads are in no service.
            cgroup="/" if kernel else draw(st.sampled_from((CGROUPS[0],) * 20 + CGROUPS)),
            pid_namespace=draw(st.sampled_from([PID_NAMESPACE] * 40 + [0, 5])),
            net_namespace=draw(st.sampled_from([NET_NAMESPACE] * 40 + [0, 5])),
        )  # fmt: skip
    everybody = st.sampled_from(sorted(found.values(), key=lambda p: p.pid))
    some = st.lists(everybody, max_size=6, unique_by=lambda p: p.pid)
    return Scene(
        processes=found,
        self_pid=draw(st.sampled_from(sorted(found))),
        listeners=tuple(listens(draw(st.sampled_from([30001, 30002, 80])), *draw(some)) for _ in range(2)),
        holds=tuple(holds(draw(st.sampled_from([0, 4])), p, believed=draw(st.booleans())) for p in draw(some)),
        environments={p.pid: VENV for p in draw(some)},
        marked=frozenset(p.pid for p in draw(st.lists(everybody, max_size=2))),
        bare=frozenset(p.pid for p in draw(st.lists(everybody, max_size=1))),
        units=OURS,
        leaving=frozenset(p.pid for p in draw(st.lists(everybody, max_size=2))),
    )


requests = st.builds(
    lambda ports, gpus, everything: ask(*ports, gpus=gpus, everything=everything),
    st.sets(st.sampled_from([30001, 30002])),
    st.sets(st.sampled_from([0, 4])),
    st.booleans(),
)


def ancestors(scene: Scene, pid: int) -> set[int]:
    found: set[int] = set()
    while (pid := scene.processes[pid].parent_pid) in scene.processes and pid not in found:
        found.add(pid)
    return found


def untouchable(scene: Scene) -> set[int]:
    """Said once more and apart from the product: who must live, come what may."""
    us = scene.processes[scene.self_pid]
    by_itself = {
        p.pid
        for p in scene.processes.values()
        if p.pid == 1 or p.kernel or p.comm in NEVER or p.cgroup in ("/dsv4.slice/dsv4-server.service",)
        or (p.cgroup == CONTAINER and us.cgroup != CONTAINER)
        or (us.pid_namespace and p.pid_namespace not in (0, us.pid_namespace))
        or (us.net_namespace and p.net_namespace not in (0, us.net_namespace))
        or not (p.pid_namespace and (p.net_namespace or leaves(scene, p)))
    }  # fmt: skip
    return by_itself | {scene.self_pid} | ancestors(scene, scene.self_pid)


def leaves(scene: Scene, one: Process) -> bool:
    """On its way out, and nothing tells what it was: it is waited for, and gets no signal."""
    return one.pid in scene.leaving and one.pid not in scene.environments.keys() | scene.marked


def in_a_service(scene: Scene, one: Process) -> bool:
    """In an installed service in which nobody untouchable lives, so that it is nobody's session."""
    if one.cgroup not in ("/system.slice/nginx.service", "/system.slice/ssh.service", CGROUPS[-1]):
        return False
    us = scene.processes[scene.self_pid]
    known = [p for p in scene.processes.values() if p.cgroup == one.cgroup]
    hidden = {p.pid for p in known if not (p.pid_namespace and p.net_namespace)}
    guarded = {p.pid for p in known} & (untouchable(scene) - hidden | ancestors(scene, us.pid) | below(scene, us.pid))
    return not guarded


def below(scene: Scene, pid: int) -> set[int]:
    return {other for other in scene.processes if pid in ancestors(scene, other)}


@settings(max_examples=200, deadline=None)
@given(forests(), requests)
def test_nobody_untouchable_is_ever_in_the_set_and_we_and_our_ancestors_least_of_all(
    scene: Scene, request: Request
) -> None:
    ended = {i.pid for i in blame(scene, request).ended}

    assert not ended & untouchable(scene)
    assert not ended & below(scene, scene.self_pid)
    assert not [pid for pid in ended if in_a_service(scene, scene.processes[pid])]


@settings(max_examples=200, deadline=None)
@given(forests(), requests)
def test_everybody_in_the_set_hangs_together_with_an_engine_that_holds_what_was_asked_for(
    scene: Scene, request: Request
) -> None:
    for tree in blame(scene, request).trees:
        members = {i.pid for i in tree.members}
        engines = scene.environments.keys() | scene.marked
        for one in (scene.processes[pid] for pid in members):
            near = {one.parent_pid, one.group, one.session} & members - {one.pid}
            unit = one.cgroup == "/system.slice/run-u7.service"
            assert one.pid == tree.root.pid or near or one.pid in engines or unit, (one.pid, members)
        assert not tree.leaving or (members == {tree.root.pid} and leaves(scene, tree.root))
        holding = [h.pid for h in scene.holds if h.believed and h.uuid in request.gpus]
        holding += [p.pid for h in scene.listeners if h.listener.port in request.ports for p in h.processes]
        assert request.everything or members & set(holding)


@settings(max_examples=200, deadline=None)
@given(forests(), requests)
def test_every_stray_engine_that_holds_what_was_asked_for_is_in_the_set_with_its_children(
    scene: Scene, request: Request
) -> None:
    ended = {i.pid for i in blame(scene, request).ended}

    holding = {h.pid for h in scene.holds if h.believed and h.uuid in request.gpus}
    holding |= {p.pid for h in scene.listeners if h.listener.port in request.ports for p in h.processes}
    spared = untouchable(scene) | below(scene, scene.self_pid)
    spared |= {pid for pid, p in scene.processes.items() if in_a_service(scene, p)}
    spared |= {pid for pid, p in scene.processes.items() if p.cgroup == CGROUPS[-1]}
    engines = (scene.environments.keys() - scene.bare) | scene.marked
    strays = {pid for pid in holding & engines if pid not in spared}
    assert strays <= ended
    for stray in strays:
        children = {p.pid for p in scene.processes.values() if p.parent_pid == stray}
        assert children - spared <= ended


@settings(max_examples=150, deadline=None)
@given(forests(), requests)
def test_a_holder_that_is_called_foreign_or_unknown_is_not_in_the_set_and_a_stray_is(
    scene: Scene, request: Request
) -> None:
    found = blame(scene, request)
    for suspect in found.suspects:
        if suspect.process is not None:
            assert (suspect.process.identity in found.ended) == (suspect.verdict == "stray"), suspect


@settings(max_examples=150, deadline=None)
@given(forests(), requests, st.data())
def test_even_whoever_is_named_is_only_ended_when_it_may_be(
    scene: Scene, request: Request, data: st.DataObject
) -> None:
    named = data.draw(st.lists(st.sampled_from([p.identity for p in scene.processes.values()]), max_size=3))
    hidden = {p.pid for p in scene.processes.values() if not (p.pid_namespace and p.net_namespace)}

    found = blame(scene, Request(ports=request.ports, gpus=request.gpus, evict=frozenset(named)))

    ended = {i.pid for i in found.ended}
    assert not ended & (untouchable(scene) - (hidden & {i.pid for i in named}))
