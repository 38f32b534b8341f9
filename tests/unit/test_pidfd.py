"""Signals and ends, with real processes."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4ctl import pidfd, procs
from dsv4ctl.clock import RealClock
from dsv4ctl.model import Identity
from dsv4ctl.problems import Problem
from tests.unit.test_procs import HEEDS_TERM, named, path_of

Start = Callable[..., subprocess.Popen[str]]

IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""
# Each child has the next one and goes: whoever looks once and kills what it saw has missed one.
FORKS_ON = """
import os, time
print('up', flush=True)
while True:
    if os.fork():
        time.sleep(0.03)
        os._exit(0)
"""


def test_a_signal_reaches_the_process_that_is_meant(start: Start) -> None:
    process = start(HEEDS_TERM)

    assert pidfd.signal(named(process), signal.SIGTERM)

    assert process.wait(10) == 7


def test_a_signal_for_an_earlier_owner_of_the_pid_hits_nobody(start: Start) -> None:
    process = start(HEEDS_TERM)
    now = named(process)

    assert not pidfd.signal(Identity(now.boot_id, now.pid, now.start_ticks - 1), signal.SIGKILL)
    assert not pidfd.signal(Identity("another boot", now.pid, now.start_ticks), signal.SIGKILL)

    assert process.poll() is None


def test_a_signal_for_a_process_that_is_gone_is_no_error(start: Start) -> None:
    process = start(HEEDS_TERM)
    meant = named(process)
    process.kill()
    process.wait()

    assert not pidfd.signal(meant, signal.SIGTERM)


def test_a_thread_is_not_a_process_to_be_signalled(start: Start) -> None:
    process = start(
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print('up', flush=True)"
    )
    (thread,) = set(map(int, os.listdir(f"/proc/{process.pid}/task"))) - {process.pid}  # noqa: PTH208 -- names only
    meant = procs.identity(thread)

    assert meant is not None
    assert not pidfd.signal(meant, signal.SIGKILL)
    assert process.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not signal us")
def test_a_signal_that_we_may_not_send_is_a_problem() -> None:
    meant = procs.ourselves()
    pid = os.fork()
    if not pid:
        os.setuid(65534)
        try:
            pidfd.signal(meant, signal.SIGKILL)
        except Problem as problem:
            os._exit(42 if "another user" in str(problem) else 1)
        finally:
            os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def test_a_signal_that_cannot_be_sent_for_want_of_files_is_not_taken_for_a_process_that_is_gone(start: Start) -> None:
    meant = named(start(HEEDS_TERM))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(Problem, match="too many open files"):
            pidfd.signal(meant, signal.SIGTERM)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_heeds_sigterm_is_not_killed(start: Start) -> None:
    process = start(HEEDS_TERM)
    meant = named(process)

    assert pidfd.end_all(lambda: [meant], RealClock(), 10, term_s=5) == ()

    assert process.wait(10) == 7


def test_what_ignores_sigterm_is_killed_when_its_time_is_over(start: Start) -> None:
    process = start(IGNORES_TERM)
    meant = named(process)
    began = time.monotonic()

    assert pidfd.end_all(lambda: [meant], RealClock(), 10, term_s=0.3) == ()

    assert 0.3 <= time.monotonic() - began < 5
    assert process.wait(10) == -signal.SIGKILL


def test_what_outlives_the_limit_is_told(start: Start) -> None:
    meant = named(start(IGNORES_TERM))

    assert pidfd.end_all(lambda: [meant], RealClock(), 0.2, term_s=60) == (meant,)


def test_we_do_not_end_ourselves() -> None:
    assert pidfd.end_all(lambda: [procs.ourselves()], RealClock(), 1) == ()


def test_a_tree_that_forks_while_it_is_being_ended_does_not_escape(start: Start, cgroup: Path) -> None:
    start(FORKS_ON, cgroup=cgroup)

    def members() -> list[Identity]:
        return [found for pid in procs.cgroup_pids(path_of(cgroup)) if (found := procs.identity(pid))]

    assert members()
    assert pidfd.end_all(members, RealClock(), 10) == ()
    assert procs.cgroup_pids(path_of(cgroup)) == ()
