"""Stopping in every phase: what is waited for, what is forced, and that nothing is left and nobody else is hit."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dsv4ctl.model import Phase
from tests.unit.supervise.conftest import Bench, marked, unit_cgroup

STOP = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


@pytest.mark.parametrize("number", STOP)
def test_a_stop_while_the_engine_loads_leaves_no_orphan(bench: Bench, number: signal.Signals) -> None:
    bench.start(orphan="plain", log=[[20, "x"]])
    bench.wait_for(lambda: "left a child" in bench.journal)
    began = time.monotonic()
    bench.signal(number)
    assert bench.end() == 0
    assert time.monotonic() - began < 3
    assert bench.said("STOPPING=1")
    assert (bench.state.phase, bench.state.exit) == (Phase.STOPPED, 0)
    assert marked(bench.folder) == []


def test_a_stop_in_the_gate_starts_nothing(bench: Bench) -> None:
    slow = bench.folder / "python"
    slow.write_text("#!/bin/sh\nsleep 20\n")
    slow.chmod(0o755)
    bench.start_engine(str(slow), "-m", "sglang.launch_server")
    bench.wait_status("checking")
    time.sleep(0.3)
    assert bench.stop() == 0
    assert bench.state.words == "stopped (SIGTERM) before the engine was started"


def test_a_stop_before_the_engine_heeds_signals_is_a_clean_stop_too(bench: Bench) -> None:
    bench.start(ignore_term=True, orphan="plain", log=[[20, "x"]])
    bench.wait_for(lambda: "left a child" in bench.journal)
    assert bench.stop() == 0
    assert marked(bench.folder) == []


def test_a_stop_during_the_proof_is_a_clean_stop(bench: Bench) -> None:
    bench.start(generation=0).wait_status("proving")
    assert bench.stop() == 0
    assert marked(bench.folder) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_engine_is_stopped_by_a_term_to_its_main_process(bench: Bench, number: signal.Signals) -> None:
    bench.start(orphan="plain").wait_ready()
    bench.signal(number)
    assert bench.end() == 0
    assert "SIGTERM received. Draining requests" in bench.journal
    assert bench.state.words == "stopped: the engine ended with exit status 0"
    assert marked(bench.folder) == []


def test_requests_are_counted_while_they_are_waited_for_and_aborted_at_the_limit(bench: Bench) -> None:
    bench.limit(drain_s=2).start(requests=3).wait_ready()
    began = time.monotonic()
    assert bench.stop() == 0
    assert 1.9 < time.monotonic() - began < 6
    assert "draining, 3 requests left, at most 2 s" in bench.statuses
    assert "aborted all requests" in bench.journal
    stopping, extended = bench.said("STOPPING=1"), [at for at, said in bench.messages if "EXTEND_TIMEOUT_USEC" in said]
    assert any(at > (stopping or 0) for at in extended)


def test_a_failing_health_during_the_drain_is_no_reason_to_end_it(bench: Bench) -> None:
    bench.limit(drain_s=4, watch_s=1, unhealthy_s=1).start(requests=1).wait_ready()
    assert bench.stop() == 0
    assert not any("failing" in status or "unhealthy" in status for status in bench.statuses)
    assert bench.state.words == "stopped: the engine ended with exit status 0"


def test_a_second_signal_ends_the_wait_for_requests(bench: Bench) -> None:
    bench.limit(drain_s=600).start(requests=1).wait_ready()
    bench.signal(signal.SIGTERM)
    bench.wait_status("draining, 1 request left")
    began = time.monotonic()
    assert bench.stop() == 0
    assert time.monotonic() - began < 5
    assert "aborted all requests" in bench.journal


def test_quit_does_not_wait_for_requests(bench: Bench) -> None:
    bench.limit(drain_s=600).start(requests=1).wait_ready()
    bench.signal(signal.SIGQUIT)
    assert bench.end() == 0
    assert "aborted all requests" in bench.journal


@pytest.mark.parametrize("how", ["limit", "third signal"])
def test_an_engine_that_does_not_end_is_killed(bench: Bench, how: str) -> None:
    bench.limit(drain_s=1, engine_stop_s=1 if how == "limit" else 600)
    bench.start(ignore_term=True, orphan="plain").wait_ready()
    began = time.monotonic()
    bench.signal(signal.SIGTERM)
    if how != "limit":
        bench.wait_status("the engine has")
        bench.signal(signal.SIGTERM)
        time.sleep(1.2)
        bench.signal(signal.SIGTERM)
    assert bench.end() == 0
    assert time.monotonic() - began < 8
    assert bench.state.words == "stopped: the engine was killed at its limit"
    assert marked(bench.folder) == []


def test_a_hung_engine_is_stopped_at_its_limits(bench: Bench) -> None:
    bench.limit(drain_s=1, engine_stop_s=1).start().wait_ready()
    os.kill(bench.state.engine_pid, signal.SIGSTOP)
    began = time.monotonic()
    assert bench.stop() == 0
    assert time.monotonic() - began < 8
    assert marked(bench.folder) == []


# What systemd does: it puts us into the unit's cgroup and says which process it executed.
AS_A_UNIT = 'echo $$ > "$1"; shift; export INVOCATION_ID=abc SYSTEMD_EXEC_PID=$$; exec "$@"'


@pytest.mark.parametrize("end", ["stop while loading", "stop", "death"])
def test_in_a_unit_its_cgroup_is_the_net_for_a_child_that_left_session_and_parent(bench: Bench, end: str) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with unit_cgroup(bench.instance.unit) as (folder, _), subprocess.Popen(sleep) as neighbour:
        bench.prefix = ("sh", "-c", AS_A_UNIT, "sh", str(folder / "cgroup.procs"))
        try:
            bench.start(
                orphan="setsid", log=[[20 if "loading" in end else 0.2, "x"]], exit=1 if end == "death" else None
            )
            bench.wait_for(lambda: "left a child" in bench.journal)
            if end == "stop":
                bench.wait_ready()
            assert bench.end() == 13 if end == "death" else bench.stop() == 0
            assert marked(bench.folder) == []
            assert (folder / "cgroup.procs").read_text() == ""
            assert neighbour.poll() is None
        finally:
            neighbour.kill()


@pytest.mark.parametrize("when", ["loading", "ready"])
def test_nobody_outside_the_engines_tree_is_hit_even_with_the_signs_of_a_unit(bench: Bench, when: str) -> None:
    # As on a build machine that is itself a service: the variables are inherited and the cgroup is everybody's.
    bench.environment |= {"INVOCATION_ID": "0123456789abcdef", "SYSTEMD_EXEC_PID": str(os.getpid())}
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, start_new_session=True) as bystander, subprocess.Popen(sleep) as neighbour:
        try:
            bench.start(log=[[20 if when == "loading" else 0, "x"]], orphan="plain")
            bench.wait_for(lambda: "left a child" in bench.journal)
            if when == "ready":
                bench.wait_ready()
            assert bench.stop() == 0
            assert marked(bench.folder) == []
            assert (bystander.poll(), neighbour.poll()) == (None, None)
        finally:
            bystander.kill()
            neighbour.kill()
