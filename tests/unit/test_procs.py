"""Processes and cgroups, with real ones."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4ctl import procs, procstat
from dsv4ctl.clock import RealClock, until
from dsv4ctl.model import Identity

Start = Callable[..., subprocess.Popen[str]]

HEEDS_TERM = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", flush=True)
signal.pause()
"""


def wait_for(seen: Callable[[], object]) -> None:
    assert until(lambda: seen() or None, RealClock(), deadline_s=10, every_s=0.01)


def path_of(folder: Path) -> str:
    return f"/{folder.relative_to(procs.cgroup_root())}"


def named(process: subprocess.Popen[str]) -> Identity:
    found = procs.identity(process.pid)
    assert found is not None
    return found


@pytest.mark.parametrize("comm", ["sleep", "a) S 1 (b", "((", "))) R", "line\nend", " ", "sglang::schedul"])
def test_a_name_with_brackets_and_spaces_does_not_shift_the_fields(comm: str) -> None:
    tail = "S 7 8 9 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 3 0 123456 1000 200 18446744073709551615"

    found = procstat.parse_stat(f"4711 ({comm}) {tail}\n")

    assert found == procstat.Stat(
        pid=4711, comm=comm, state="S", parent_pid=7, group=8, session=9, threads=3, start_ticks=123456
    )


def test_one_on_its_way_out_is_told_by_its_flags() -> None:
    """As Linux 6.18 showed one that had been killed and took seconds to give up its memory."""
    found = procstat.parse_stat("7 (python3) R 5 5 5 0 -1 4195340 1 0 0 0 5 6 0 0 20 0 1 0 123456 0 0 0\n")

    assert (found.exiting, found.kernel, found.ended) == (True, False, False)


def test_a_process_is_read_whole(start: Start) -> None:
    evil = "evil) R 1 (x"
    process = start(
        f"import os, time; open('/proc/self/comm', 'w').write({evil!r}); os.setsid()\n"
        "print('up', flush=True); time.sleep(60)"
    )

    wait_for(lambda: (state := procs.stat(process.pid)) and state.state == "S")

    found = procs.read(process.pid)

    assert found is not None
    assert found.identity == procs.identity(process.pid)
    assert (found.comm, found.parent_pid, found.state) == (evil, os.getpid(), "S")
    assert found.session == found.group == process.pid
    assert found.uid == os.geteuid()
    assert "time.sleep(60)" in found.command
    assert found.cgroup == procs.own_cgroup()
    assert 0 <= time.time() - found.started_at < 30


def test_a_process_that_has_wiped_its_command_line_is_shown_by_its_name() -> None:
    kernel_thread = procs.stat(2)
    if kernel_thread is None or kernel_thread.comm != "kthreadd":
        pytest.skip("no kernel threads in this pid namespace")

    found = procs.read(2)

    assert found is not None
    assert found.command == "[kthreadd]"


def test_there_is_no_process_where_none_is() -> None:
    beyond = int(Path("/proc/sys/kernel/pid_max").read_text())

    assert procs.identity(beyond) is None
    assert procs.read(beyond) is None
    assert procs.environment(beyond) == {}
    assert procs.ancestors(beyond) == ()


def test_an_identity_stays_the_same_and_tells_two_processes_apart(start: Start) -> None:
    process = start(HEEDS_TERM)

    assert procs.identity(process.pid) == procs.identity(process.pid)
    assert procs.identity(process.pid) != procs.identity(os.getpid()) == procs.ourselves()


def test_the_environment_is_the_one_a_process_was_started_with(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4CTL_RELEASE", "abc=def")
    process = start(HEEDS_TERM)

    assert procs.environment(process.pid)["DSV4CTL_RELEASE"] == "abc=def"


def test_parents_are_told_up_to_the_first_process_and_children_down_to_the_last(start: Start) -> None:
    process = start(
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {HEEDS_TERM!r}], stdout=subprocess.DEVNULL)\n"
        "print('up', flush=True); child.wait()"
    )
    wait_for(lambda: len(procs.descendants(process.pid)) == 1)
    (grandchild,) = procs.descendants(process.pid)

    up = procs.ancestors(grandchild.pid)

    assert up[:2] == (named(process), procs.ourselves())
    assert up[-1].pid == 1
    assert {named(process), grandchild} <= set(procs.descendants(os.getpid()))
    os.kill(grandchild.pid, signal.SIGKILL)


def test_a_zombie_does_not_live() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    try:
        wait_for(lambda: (state := procs.stat(pid)) and state.state == "Z")
        zombie = procs.identity(pid)

        assert zombie is not None
        assert not procs.alive(zombie)
    finally:
        os.waitpid(pid, 0)
    assert procs.identity(pid) is None


def test_a_process_whose_first_thread_has_ended_lives_on(start: Start) -> None:
    # As one does whose other thread sits in a driver call: /proc says Z, and the memory is not free.
    process = start(
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    wait_for(lambda: (state := procs.stat(process.pid)) and state.state == "Z")

    assert procs.alive(named(process))


def test_another_process_with_the_same_pid_is_not_the_one_that_was_meant(start: Start) -> None:
    now = named(start(HEEDS_TERM))

    assert procs.alive(now)
    assert not procs.alive(Identity(now.boot_id, now.pid, now.start_ticks - 1))
    assert not procs.alive(Identity("another boot", now.pid, now.start_ticks))


HYBRID = """\
30 23 0:25 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw
32 30 0:27 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,name=systemd
"""
UNIFIED = "31 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
BOUND_FIRST = "30 23 0:26 /some.slice /mnt/part\\040one rw - cgroup2 cgroup2 rw\n" + UNIFIED


@pytest.mark.parametrize(
    ("mountinfo", "point"),
    [
        (HYBRID, "/sys/fs/cgroup/unified"),
        (UNIFIED, "/sys/fs/cgroup"),
        (BOUND_FIRST, "/sys/fs/cgroup"),
        (BOUND_FIRST.splitlines()[0], "/mnt/part one"),
        ("23 1 8:1 / / rw - ext4 /dev/sda1 rw\n", None),
    ],
)
def test_the_unified_hierarchy_is_found_where_it_is_mounted(mountinfo: str, point: str | None) -> None:
    assert procs.parse_cgroup_mount(mountinfo) == point


@pytest.mark.parametrize(
    ("text", "cgroup"),
    [
        ("0::/system.slice/dsv4-server.service\n", "/system.slice/dsv4-server.service"),
        ("9:name=systemd:/a\n1:cpu:/b\n0::/c\n", "/c"),
        ("0::/gone.service (deleted)\n", "/gone.service"),
        ("1:cpu:/b\n", ""),
        ("", ""),
    ],
)
def test_the_cgroup_of_a_process_is_the_unified_one(text: str, cgroup: str) -> None:
    assert procs.parse_cgroup(text) == cgroup


def test_the_pids_of_a_cgroup_are_those_in_it_and_below_it(start: Start, cgroup: Path) -> None:
    """B53: emptiness is read and never inferred."""
    outer = start(HEEDS_TERM, cgroup=cgroup)
    inner = start(HEEDS_TERM, cgroup=cgroup / "inner")

    assert set(procs.cgroup_pids(path_of(cgroup))) == {outer.pid, inner.pid}
    assert procs.cgroup_pids(path_of(cgroup), recursive=False) == (outer.pid,)
    assert procs.cgroup_of(inner.pid) == path_of(cgroup / "inner")


@pytest.mark.parametrize("cgroup", ["", "/no/such.service", "/../outside", "relative"])
def test_no_cgroup_and_a_foreign_one_have_no_pids(cgroup: str) -> None:
    assert procs.cgroup_pids(cgroup) == ()


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("/dsv4.slice/dsv4-server.service", "dsv4-server.service"),
        ("/dsv4.slice/dsv4-server.service/inner", "dsv4-server.service"),
        ("/system.slice/docker-0123abcd.scope", "docker-0123abcd.scope"),
        ("/user.slice/user-0.slice/session-3.scope", "session-3.scope"),
        ("/system.slice/_cpu.service", "cpu.service"),
        (r"/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
        ("/system.slice", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_the_unit_of_a_cgroup_is_its_last_service_or_scope(cgroup: str, unit: str) -> None:
    assert procs.unit_of_cgroup(cgroup) == unit


@pytest.mark.parametrize(
    ("cgroup", "outer", "inside"),
    [
        ("/a.service", "/a.service", True),
        ("/a.service/libpod", "/a.service", True),
        ("/a.service2", "/a.service", False),
        ("/", "/a.service", False),
        ("/a.service", "/", True),
        ("/a.service", "", False),
        ("", "", False),
        ("", "/a.service", False),
    ],
)
def test_a_cgroup_lies_within_itself_and_its_parents_by_whole_components(cgroup: str, outer: str, inside: bool) -> None:  # noqa: FBT001
    assert procs.within(cgroup, outer) is inside


CRASH = """
import os, resource
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
heap = b"x" * (512 << 20)
print("up", flush=True)
os.abort()
"""


def test_a_process_that_writes_its_core_file_is_told_from_one_that_runs(tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or "|" in pattern:
        pytest.skip(f"this kernel sends core files elsewhere: {pattern}")
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard not in (resource.RLIM_INFINITY, -1):
        pytest.skip("core files are limited here")
    assert not procs.is_dumping_core(os.getpid())
    with subprocess.Popen([sys.executable, "-c", CRASH], cwd=tmp_path, stdout=subprocess.PIPE) as crashing:
        seen = False
        while crashing.poll() is None:
            seen = seen or procs.is_dumping_core(crashing.pid)

    assert seen
    assert not procs.is_dumping_core(crashing.pid)
    for core in tmp_path.glob("core*"):
        core.unlink()
