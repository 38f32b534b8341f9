"""The stand-in engine ends, or does not, as its behaviour file says."""

import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import pidfd, procs, sockets
from dsv4ctl.clock import until
from tests.contract.engines import CLOCK, Build, Server

Begin = Callable[..., Server]


@pytest.mark.parametrize(
    ("keys", "status", "words"),
    [
        ({"exit": 1}, 1, "asks for exit status 1"),
        ({"exit": 2}, 2, "sglang serve: error: unrecognized arguments"),
        ({"exit": 3}, 3, "[Errno 98] error while attempting to bind on address"),
        ({"crash_in": "dist"}, -9, "Received sigquit from a child process"),
        ({"crash_in": "weights"}, -9, "Scheduler hit an exception: Traceback"),
        ({"crash_in": "warmup"}, -9, "SIGQUIT received."),
        ({"oom_in": "graphs"}, -9, "torch.OutOfMemoryError: CUDA out of memory"),
        ({"die_in": "weights", "load_s": 0.5}, 1, "Rank 0 scheduler died during initialization (exit code: -9)"),
        ({"exit_while_serving_after_s": 0.1}, 1, "fired up"),
        ({"abort_after_s": 0.1}, -6, "fired up"),
        ({"colour": "red", "load_s": "long"}, 1, "load_s must be float, not \"long\"\n  unknown key 'colour'"),
    ],
)
def test_it_ends_as_asked(begin: Begin, keys: dict[str, Any], status: int, words: str) -> None:
    server = begin(**keys)
    assert server.wait_end(20)[0] == status
    assert words in server.said()
    assert until(lambda: server.members() == () or None, CLOCK, 2, 0.02)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, -2), (signal.SIGHUP, -1), (signal.SIGQUIT, -9)])
def test_other_signals_end_it_and_its_tree_as_they_end_the_real_one(
    ready: Begin, number: signal.Signals, status: int
) -> None:
    server = ready()
    server.process.send_signal(number)
    assert server.wait_end(5)[0] == status
    assert until(lambda: server.members() == () or None, CLOCK, 2, 0.02)


def test_with_living_schedulers_a_crash_waits_for_core_dumps(ready: Begin, build: Build) -> None:
    dumps = (("SGLANG_CUDA_COREDUMP_BEFORE_CRASH", "1"), ("SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS", "1"))
    engine = replace(build, environment=build.environment + dumps)
    server = ready(engine=engine)
    detokenizer = procs.identity(server.titles()["sglang::detokenizer"])
    assert detokenizer is not None
    assert pidfd.signal(detokenizer, signal.SIGKILL)
    status, seconds = server.wait_end(5)
    assert status == -9
    assert seconds > 1
    assert "Waiting 1.0 seconds for CUDA coredumps before exiting." in server.said()


def test_a_stall_is_a_tree_that_lives_and_says_nothing(begin: Begin) -> None:
    server = begin(stall_in="weights", weights_steps=10)
    assert until(lambda: "Completed | 4/10" in server.said() or None, CLOCK, 10, 0.02)
    CLOCK.sleep(0.1)
    before = server.said()
    CLOCK.sleep(0.5)
    assert server.said() == before
    assert server.alive()
    assert server.status("/ready") is None


def test_a_rendezvous_port_that_is_taken_ends_the_load(begin: Begin, ports: Iterator[tuple[int, int]]) -> None:
    http, rendezvous = next(ports)
    with socket.create_server(("", rendezvous)):
        server = begin(at=(http, rendezvous))
        assert server.wait_end(20)[0] == -9
    assert "DistNetworkError" in server.said()
    assert "EADDRINUSE" in server.said()


@pytest.mark.parametrize("kind", ["listening", "bound"])
def test_a_helper_of_its_own_takes_its_port(begin: Begin, kind: str) -> None:
    server = begin(helper_takes_port=kind)
    assert until(lambda: "[Errno 98] error while attempting to bind" in server.said() or None, CLOCK, 10, 0.05)
    holders = [process.pid for holder in sockets.holders(server.port) for process in holder.processes]
    assert bool(holders) == (kind == "listening")
    assert set(holders) <= {one.pid for one in server.members()} - {server.pid}


@pytest.mark.parametrize("keys", [{"ignore_sigterm": True}, {"join_children_forever_on_term": True}])
def test_sigterm_does_not_end_it_when_so_asked(ready: Begin, keys: dict[str, Any]) -> None:
    server = ready(**keys)
    server.process.send_signal(signal.SIGTERM)
    CLOCK.sleep(0.5)
    assert server.alive()
    assert len(server.titles()) == 4


def test_sigterm_before_the_first_request_closes_the_port_and_hangs(begin: Begin) -> None:
    server = begin(warmup_s=30)
    server.wait_for("/v1/models")
    server.process.send_signal(signal.SIGTERM)
    assert until(lambda: server.status("/v1/models") is None or None, CLOCK, 2, 0.02)
    CLOCK.sleep(0.5)
    assert server.alive()


def test_renamed_children_survive_it_hold_a_gpu_and_end_by_themselves(ready: Begin, ledger: Path) -> None:
    server = ready(leave_renamed_children=2, orphan_s=2.0)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_end(10)[0] == 0
    assert server.members() == ()
    left = [int(file.name) for file in ledger.glob("GPU-a/[0-9]*")]
    assert sorted(found.command for pid in left if (found := procs.read(pid))) == ["kv-offload/0", "kv-offload/1"]
    assert until(lambda: not list(ledger.glob("*/[0-9]*")) or None, CLOCK, 5, 0.05)


def test_fewer_gpus_than_ranks_are_refused(begin: Begin, build: Build) -> None:
    server = begin(engine=replace(build, environment=(("CUDA_VISIBLE_DEVICES", "GPU-a"),)))
    assert server.wait_end(20)[0] == -9
    assert "CUDA error: invalid device ordinal" in server.said()


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (("--mem-fraction-static", "0.78"), "Raise --mem-fraction-static above 0.797"),
        (("--tp-size", "1"), "torch.OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_what_does_not_fit_into_a_gpu_ends_the_load(begin: Begin, words: tuple[str, ...], trouble: str) -> None:
    server = begin(*words)
    assert server.wait_end(20)[0] == -9
    assert trouble in server.said()


def test_an_old_spelling_is_ambiguous_and_ends_with_2(begin: Begin) -> None:
    server = begin("--cuda-graph-max-bs", "8")
    assert server.wait_end(10)[0] == 2
    assert "ambiguous option: --cuda-graph-max-bs could match" in server.said()


def test_a_model_that_is_not_there_ends_it_with_1(begin: Begin, build: Build, tmp_path: Path) -> None:
    server = begin(engine=replace(build, model=tmp_path / "no-model"))
    assert server.wait_end(10)[0] == 1
    assert "Can't load the configuration of" in server.said()
