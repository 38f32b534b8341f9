"""A serving instance among its peers: who is missing is said and its own engine goes on; a drain behind a router."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import procs
from dsv4ctl.model import Ask, Peer, Phase, Role, SuperviseExit
from tests.unit.supervise.conftest import Bench
from tests.unit.supervise.test_peers import DECODE, PREFILL, said, write

ROUTER = Peer(name="router", role=Role.ROUTER, unit="dsv4-router.service")


@pytest.fixture
def decode(bench: Bench) -> Bench:
    """A supervisor of a decode whose peers' states the test writes; both serve."""
    bench.instance = replace(bench.instance, name="decode", role=Role.DECODE, unit=DECODE.unit, peers=(PREFILL, ROUTER))
    for name in ("prefill", "router"):
        write(bench.folder, said(name, Phase.READY))
    return bench


def engine_of(bench: Bench) -> int:
    return bench.state.engine_pid


def test_b49_a_peer_that_died_is_named_in_the_status_and_our_own_engine_goes_on(decode: Bench) -> None:
    """B49: SIGKILL prefill: decode and router keep their pids."""
    decode.start().wait_ready()
    engine, ready = engine_of(decode), decode.statuses[-1]
    write(decode.folder, said("prefill", Phase.READY, start_ticks=1))
    decode.wait_status(f"{ready}; degraded: peer down (dsv4-prefill: killed while it served)")
    write(decode.folder, said("prefill", Phase.WEIGHTS, "loading weights 3/46"))
    decode.wait_status("degraded: peer down (dsv4-prefill: loading weights 3/46)")
    write(decode.folder, said("prefill", Phase.READY))
    decode.wait_for(lambda: decode.statuses[-1] == ready)
    assert (engine_of(decode), decode.state.phase) == (engine, Phase.READY)
    assert decode.journal.count("degraded: peer down (dsv4-prefill") == 1
    assert decode.journal.count("dsv4-prefill is ready again") == 1


def test_a_peer_that_was_not_there_yet_is_waited_for_and_nothing_is_degraded(decode: Bench) -> None:
    (decode.folder / "router/state.json").unlink()
    decode.start().wait_ready()
    decode.wait_status("; waiting for its peers (dsv4-router: not started)")
    assert not any("degraded" in status for status in decode.statuses)


def test_an_instance_without_peers_says_nothing_of_any(bench: Bench) -> None:
    bench.start().wait_ready()
    assert "peer" not in bench.statuses[-1]


def test_b82_a_half_says_that_the_pair_is_not_proved_until_its_router_says_that_it_is(decode: Bench) -> None:
    """B82: no traffic is called healthy before."""
    decode.start().wait_ready()
    ready, own, prefill = decode.statuses[-1], procs.identity(decode.pid), procs.ourselves()
    assert own is not None
    router = said("router", Phase.READY)
    write(decode.folder, replace(router, proved=(prefill, replace(own, start_ticks=1))))
    decode.wait_status(f"{ready}; degraded: the pair is not proved again yet")
    write(decode.folder, replace(router, proved=(prefill, own)))
    decode.wait_for(lambda: decode.statuses[-1] == ready)


def ask(bench: Bench, unit: str, start_ticks: int, *, hurried: bool = False) -> None:
    """Have the router ask this bench's supervisor, named like this, to start again."""
    state = said("router", Phase.READY)
    asks = Ask(unit=unit, pid=bench.pid, start_ticks=start_ticks, because="the pair does not answer", hurried=hurried)
    write(bench.folder, replace(state, asks=asks, without=("decode",)))


def test_b82_a_half_that_its_router_asks_to_drains_ends_and_is_not_a_failure(decode: Bench) -> None:
    """B82: on failure the policy (restart peers or router) is applied in order and logged."""
    decode.start().wait_ready()
    own = procs.identity(decode.pid)
    assert own is not None
    ask(decode, DECODE.unit, own.start_ticks)
    assert decode.end() == SuperviseExit.ASKED
    assert decode.state.phase is Phase.STOPPED
    assert "dsv4-router.service asks for a restart: the pair does not answer" in decode.journal
    assert decode.state.words == "stopped: the engine ended with exit status 0, as dsv4-router.service asked for"


def test_a_half_whose_requests_cannot_finish_does_not_wait_for_them_when_it_is_asked_to_start_again(
    decode: Bench,
) -> None:
    decode.limit(drain_s=600).start(requests=1).wait_ready()
    own = procs.identity(decode.pid)
    assert own is not None
    ask(decode, DECODE.unit, own.start_ticks, hurried=True)
    assert decode.end() == SuperviseExit.ASKED
    assert decode.journal.index("aborted all requests") < decode.journal.index("SIGTERM received")


def test_a_request_that_meant_somebody_else_is_not_heeded(decode: Bench) -> None:
    decode.start().wait_ready()
    own = procs.identity(decode.pid)
    assert own is not None
    for unit, ticks in ((PREFILL.unit, own.start_ticks), (DECODE.unit, own.start_ticks - 1)):
        ask(decode, unit, ticks)
        # What comes after it has been seen is a sign that it has been seen.
        write(decode.folder, said("prefill", Phase.WEIGHTS, f"loading for {unit} {ticks}"))
        decode.wait_status(f"loading for {unit} {ticks}")
    assert decode.state.phase is Phase.READY


# ---- drains ----------------------------------------------------------------------------------------------------------


def test_a_drain_behind_a_router_sends_no_term_until_the_router_sends_elsewhere(decode: Bench) -> None:
    decode.start().wait_ready()
    decode.signal(signal.SIGTERM)
    decode.wait_status("draining, 0 requests left")
    assert "SIGTERM received" not in decode.journal
    write(decode.folder, replace(said("router", Phase.READY), without=("decode",)))
    assert decode.end() == SuperviseExit.OK
    assert "SIGTERM received" in decode.journal


def test_a_drain_behind_a_router_that_is_down_is_as_quick_as_any(decode: Bench) -> None:
    decode.start().wait_ready()
    write(decode.folder, said("router", Phase.STOPPED))
    decode.wait_status("(dsv4-router: stopped)")
    assert decode.stop() == SuperviseExit.OK


def test_a_prefill_gets_no_term_while_a_transfer_is_open(decode: Bench, tmp_path: Path) -> None:
    write(decode.folder, said("router", Phase.STOPPED))
    open_file = tmp_path / "open"
    open_file.touch()
    decode.start(requests_file=str(open_file)).wait_ready()
    decode.signal(signal.SIGTERM)
    decode.wait_status("draining, 1 request left")
    assert "SIGTERM received" not in decode.journal
    open_file.unlink()
    assert decode.end() == SuperviseExit.OK
