"""What may be ended: the most dangerous question of the project. Every test is about a process that must live on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import pidfd, procs
from dsv4ctl.clock import RealClock
from dsv4ctl.model import Family, Holder, Identity, Listener
from dsv4ctl.supervise import engine, territory
from dsv4ctl.supervise.engine import Child
from dsv4ctl.supervise.territory import Territory
from tests.unit.supervise.conftest import unit_cgroup

UNIT = "dsv4-server.service"
OURS = {"INVOCATION_ID": "abc", "SYSTEMD_EXEC_PID": "77"}
SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
# Leaves a child behind that it cannot be the parent of for long, then lives on.
FORKS = "import os, time; os.fork() or os.fork() or time.sleep(600); time.sleep(600)"


# ---- the decision --------------------------------------------------------------------------------------------------


def test_the_cgroup_of_our_own_unit_is_ours() -> None:
    assert territory.unit_cgroup(f"/dsv4.slice/{UNIT}", UNIT, OURS, 77) == f"/dsv4.slice/{UNIT}"


@pytest.mark.parametrize(
    "cgroup",
    [
        "",
        "/",
        UNIT,
        "/system.slice",
        "/system.slice/ssh.service",
        "/system.slice/build-agent.service",
        "/user.slice/user-0.slice/session-3.scope",
        "/user.slice/user-1000.slice/user@1000.service",
        "/process_api/a854767e7760b8205c9efc8b5942849e",
        f"/dsv4.slice/{UNIT}/payload",
        f"/dsv4.slice/{UNIT}/..",
        f"/../{UNIT}",
        f"/dsv4.slice/x{UNIT}",
        "/dsv4.slice/dsv4-decode.service",
        "/dsv4.slice",
        "/init.scope",
    ],
)
def test_no_other_cgroup_is_ours(cgroup: str) -> None:
    assert territory.unit_cgroup(cgroup, UNIT, OURS, 77) == ""


@pytest.mark.parametrize("unit", ["", "/", ".", "..", "dsv4.slice", "dsv4.target", "dsv4-server"])
def test_what_is_no_service_or_scope_owns_no_cgroup(unit: str) -> None:
    assert territory.unit_cgroup(f"/{unit}", unit, OURS, 77) == ""


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"INVOCATION_ID": "abc"},
        {"SYSTEMD_EXEC_PID": "77"},
        {"INVOCATION_ID": "", "SYSTEMD_EXEC_PID": "77"},
        {"INVOCATION_ID": "abc", "SYSTEMD_EXEC_PID": "1"},  # a shell inside the unit inherited it
        {"INVOCATION_ID": "abc", "SYSTEMD_EXEC_PID": ""},
    ],
)
def test_without_systemds_own_signs_not_even_the_right_cgroup_is_ours(environment: dict[str, str]) -> None:
    assert territory.unit_cgroup(f"/dsv4.slice/{UNIT}", UNIT, environment, 77) == ""


@given(st.text("/.abservic-", max_size=40), st.text("/.abservic-", max_size=20))
def test_a_cgroup_is_ours_only_when_it_ends_in_our_unit(cgroup: str, unit: str) -> None:
    found = territory.unit_cgroup(cgroup, unit, OURS, 77)
    assert found in ("", cgroup)
    if found:
        assert cgroup.endswith(f"/{unit}")
        assert unit.endswith((".service", ".scope"))


def test_this_very_test_run_owns_no_cgroup() -> None:
    signs = {"INVOCATION_ID": "abc", "SYSTEMD_EXEC_PID": str(os.getpid())}
    assert territory.claim(UNIT, signs) == ""


# ---- real processes ------------------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[Child]:
    started = engine.start((sys.executable, "-c", FORKS), dict(os.environ))
    yield started
    # It may still be forking: whoever is looked for once is not all of it.
    assert pidfd.end_all(lambda: territory.tree(started.identity), RealClock(), 30) == ()
    engine.reap(started)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def members_soon(own: Territory, count: int) -> tuple[Identity, ...]:
    for _ in range(200):
        if len(found := territory.members(own)) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"only {found}")


def test_without_a_cgroup_only_the_engines_tree_is_ours(child: Child, bystander: subprocess.Popen[bytes]) -> None:
    found = members_soon(Territory(cgroup="", engine=child.identity), 3)
    pids = {process.pid for process in found}
    assert child.identity.pid in pids
    assert not pids & {os.getpid(), os.getppid(), 1, bystander.pid}
    assert all(os.getsid(pid) == child.identity.pid for pid in pids)


def test_orphans_of_a_dead_engine_are_found_by_its_session(child: Child) -> None:
    own = Territory(cgroup="", engine=child.identity)
    members_soon(own, 3)
    pidfd.signal(child.identity, signal.SIGKILL)
    while engine.end_of(child) is None:
        time.sleep(0.01)
    orphans = territory.members(own)
    assert len(orphans) == 2
    assert child.identity not in orphans


def test_a_pid_that_belongs_to_another_process_now_is_not_ours(bystander: subprocess.Popen[bytes]) -> None:
    there = procs.identity(bystander.pid)
    assert there is not None
    stale = Identity(there.boot_id, there.pid, there.start_ticks - 1)
    assert territory.members(Territory(cgroup="", engine=stale)) == ()


def test_a_reaped_engine_owns_nobody(child: Child) -> None:
    for process in members_soon(Territory(cgroup="", engine=child.identity), 3):
        pidfd.signal(process, signal.SIGKILL)
    gone = engine.start(("/bin/true",), {})
    while engine.end_of(gone) is None:
        time.sleep(0.01)
    engine.reap(gone)
    assert territory.members(Territory(cgroup="", engine=gone.identity)) == ()


def test_our_own_session_is_never_taken_for_an_engines() -> None:
    leader = procs.identity(os.getsid(0))
    if leader is None:
        pytest.skip("the leader of this session has ended")
    assert territory.members(Territory(cgroup="", engine=leader)) == ()


def test_a_cgroup_that_we_are_not_in_is_not_emptied(child: Child) -> None:
    with unit_cgroup(UNIT) as (folder, cgroup), subprocess.Popen(SLEEP) as stranger:
        (folder / "cgroup.procs").write_text(str(stranger.pid))
        found = territory.members(Territory(cgroup=cgroup, engine=child.identity))
        assert stranger.pid not in {process.pid for process in found}
        stranger.kill()


def test_in_our_own_cgroup_everything_is_ours_but_ourselves() -> None:
    script = (
        "import os, subprocess, sys; from dsv4ctl.supervise import engine, territory\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "inside = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "child = engine.start(['/bin/sleep', '600'], {})\n"
        "signs = {'INVOCATION_ID': 'a', 'SYSTEMD_EXEC_PID': str(os.getpid())}\n"
        "own = territory.Territory(cgroup=territory.claim(sys.argv[2], signs), engine=child.identity)\n"
        "found = {process.pid for process in territory.members(own)}\n"
        "print(own.cgroup, found == {inside.pid, child.identity.pid})\n"
        "inside.kill(); os.kill(child.identity.pid, 9)\n"
    )
    with unit_cgroup(UNIT) as (folder, cgroup):
        argv = [sys.executable, "-c", script, str(folder / "cgroup.procs"), folder.name]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert done.stdout.split() == [cgroup, "True"], done.stderr


# ---- who holds a socket ----------------------------------------------------------------------------------------------


def listener(cgroup: str) -> Listener:
    return Listener(family=Family.IPV4, address="127.0.0.1", port=30001, inode=1, cgroup=cgroup)


@pytest.mark.parametrize(
    ("cgroup", "ours"),
    [
        (f"/dsv4.slice/{UNIT}", True),
        (f"/dsv4.slice/{UNIT}/container", True),
        (f"/dsv4.slice/{UNIT}2", False),
        ("/dsv4.slice", False),
        ("/system.slice/other.service", False),
        ("", False),
    ],
)
def test_a_listener_is_ours_by_path_prefix_of_its_cgroup(cgroup: str, ours: bool, child: Child) -> None:  # noqa: FBT001
    own = Territory(cgroup=f"/dsv4.slice/{UNIT}", engine=child.identity)
    assert territory.owns(own, Holder(listener=listener(cgroup))) is ours


def test_who_holds_a_socket_now_counts_more_than_where_it_was_made(
    child: Child, bystander: subprocess.Popen[bytes]
) -> None:
    moved_away = procs.read(bystander.pid)
    assert moved_away is not None
    own = Territory(cgroup=f"/dsv4.slice/{UNIT}", engine=child.identity)
    assert not territory.owns(own, Holder(listener=listener(own.cgroup), processes=(moved_away,)))


def test_without_a_cgroup_a_listener_is_ours_by_the_engines_tree(
    child: Child, bystander: subprocess.Popen[bytes]
) -> None:
    own, theirs = procs.read(child.identity.pid), procs.read(bystander.pid)
    assert own is not None
    assert theirs is not None
    here = Territory(cgroup="", engine=child.identity)
    assert territory.owns(here, Holder(listener=listener("/"), processes=(own,)))
    assert not territory.owns(here, Holder(listener=listener("/"), processes=(theirs,)))
    assert not territory.owns(here, Holder(listener=listener("/")))
