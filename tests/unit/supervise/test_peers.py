"""What a supervisor sees of its peers, and for whom a router waits before it is started."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import procs, record
from dsv4ctl.model import Identity, Peer, Phase, Role, RunState, SuperviseExit
from dsv4ctl.supervise import peers
from dsv4ctl.supervise.peers import Seen, Stand, Watch
from tests.unit.supervise.conftest import Bench

PREFILL = Peer(name="prefill", role=Role.PREFILL, unit="dsv4-prefill.service")
DECODE = Peer(name="decode", role=Role.DECODE, unit="dsv4-decode.service")
SERVERS = tuple(Peer(name=f"server-{n}", role=Role.SERVER, unit=f"dsv4-server-{n}.service") for n in (0, 1))


def said(name: str, phase: Phase, words: str = "", start_ticks: int | None = None) -> RunState:
    """A state of this very process, or of one that had its pid before."""
    own = procs.ourselves()
    ticks = own.start_ticks if start_ticks is None else start_ticks
    now = time.time()
    return RunState(
        name=name,
        digest="d",
        phase=phase,
        words=words or str(phase),
        since=now,
        started_at=now,
        pid=own.pid,
        start_ticks=ticks,
    )


def write(folder: Path, state: RunState) -> None:
    """Say it, as a supervisor does."""
    (folder / state.name).mkdir(exist_ok=True)
    (folder / state.name / "new").write_text(record.dump_state(state))
    (folder / state.name / "new").rename(folder / state.name / "state.json")


def seen(peer: Peer, stand: Stand) -> Seen:
    phases = {Stand.COMING: Phase.WEIGHTS, Stand.READY: Phase.READY, Stand.GOING: Phase.DRAINING}
    return Seen(peer, said(peer.name, phases.get(stand, Phase.STOPPED)), lives=True)


@pytest.mark.parametrize(
    ("phase", "stand"),
    [
        (Phase.GATE, Stand.COMING),
        (Phase.PROOF, Stand.COMING),
        (Phase.READY, Stand.READY),
        (Phase.DRAINING, Stand.GOING),
        (Phase.STOPPING, Stand.GOING),
        (Phase.STOPPED, Stand.DOWN),
        (Phase.FAILED, Stand.DOWN),
    ],
)
def test_a_peer_stands_where_its_living_supervisor_says(tmp_path: Path, phase: Phase, stand: Stand) -> None:
    write(tmp_path, said("prefill", phase))
    assert Watch(tmp_path, (PREFILL,)).look()[0].stand is stand


def test_a_state_outlives_its_supervisor_and_counts_no_more_also_when_the_pid_was_given_to_another(
    tmp_path: Path,
) -> None:
    watch = Watch(tmp_path, (PREFILL,))
    assert (watch.look()[0].stand, watch.look()[0].words) == (Stand.DOWN, "dsv4-prefill: not started")
    write(tmp_path, said("prefill", Phase.READY, "ready: it", start_ticks=1))
    assert (watch.look()[0].stand, watch.look()[0].words) == (Stand.DOWN, "dsv4-prefill: killed while it served")
    write(tmp_path, said("prefill", Phase.WEIGHTS, "loading weights 3/46", start_ticks=1))
    assert watch.look()[0].words == "dsv4-prefill: killed while loading weights 3/46"


def test_a_broken_state_is_none(tmp_path: Path) -> None:
    (tmp_path / "prefill").mkdir()
    (tmp_path / "prefill/state.json").write_text("{")
    assert Watch(tmp_path, (PREFILL,)).look()[0].state is None


def test_looking_at_two_peers_every_second_costs_a_small_part_of_a_core(tmp_path: Path) -> None:
    for name in ("prefill", "decode"):
        write(tmp_path, said(name, Phase.READY))
    watch = Watch(tmp_path, (PREFILL, DECODE))
    watch.look()
    before = time.process_time()
    for _ in range(100):
        watch.look()
    assert (time.process_time() - before) / 100 < 0.003


def test_b52_both_halves_of_a_pair_are_waited_for_whatever_they_do() -> None:
    for stand in (Stand.COMING, Stand.GOING, Stand.DOWN):
        found = (seen(PREFILL, stand), seen(DECODE, Stand.READY))
        assert peers.awaited(found, {PREFILL: 1000.0}, 360.0) == found[:1]
    assert peers.awaited((seen(PREFILL, Stand.READY), seen(DECODE, Stand.READY)), {}, 360.0) == ()


def test_b52_of_two_servers_one_is_enough_once_the_other_stays_away() -> None:
    ready = seen(SERVERS[1], Stand.READY)
    coming, down = seen(SERVERS[0], Stand.COMING), seen(SERVERS[0], Stand.DOWN)
    assert peers.awaited((coming, ready), {}, 360.0) == (coming,)
    assert peers.awaited((down, ready), {SERVERS[0]: 359.0}, 360.0) == (down,)
    assert peers.awaited((down, ready), {SERVERS[0]: 360.0}, 360.0) == ()
    both = (down, seen(SERVERS[1], Stand.DOWN))
    assert peers.awaited(both, dict.fromkeys(SERVERS, 400.0), 360.0) == both


# ---- a router's supervisor -----------------------------------------------------------------------------------------


@pytest.fixture
def router(bench: Bench) -> Bench:
    """A supervisor of a router, in front of a pair whose states the test writes."""
    bench.instance = replace(bench.instance, name="router", role=Role.ROUTER, peers=(DECODE, PREFILL))
    return bench


def test_b52_a_router_is_started_only_when_the_last_of_its_workers_is_ready(router: Bench) -> None:
    write(router.folder, said("prefill", Phase.WEIGHTS, "loading weights 31/46"))
    router.start(readiness=200)
    router.wait_status(
        "waiting for dsv4-decode and dsv4-prefill to be ready "
        "(dsv4-decode: not started; dsv4-prefill: loading weights 31/46)"
    )
    write(router.folder, said("prefill", Phase.READY))
    router.wait_status("waiting for dsv4-decode to be ready")
    assert router.state.engine_pid == 0
    assert any("EXTEND_TIMEOUT_USEC" in message for _, message in router.messages)
    write(router.folder, said("decode", Phase.READY))
    became_ready = procs.now_ticks()
    # No farther: nobody answers for the halves here, so that no generation crosses them.
    router.wait_status("proving it with one generation through it")
    engine = procs.identity(router.state.engine_pid)
    assert engine is not None
    assert engine.start_ticks >= became_ready


def test_b52_a_router_whose_worker_stays_down_fails_and_names_it(router: Bench) -> None:
    router.limit(restart_s=1, restart_max_s=1)
    write(router.folder, said("prefill", Phase.READY))
    write(router.folder, said("decode", Phase.FAILED, "the engine refuses its arguments"))
    router.start(readiness=200)
    assert router.end() == SuperviseExit.PEER
    assert router.state.words == (
        "cannot start: a worker stays down, for 16 s now (dsv4-decode: the engine refuses its arguments)"
    )
    assert router.state.advice == "dsv4ctl logs decode; then: systemctl start dsv4-decode.service"


def test_a_router_whose_workers_are_not_taken_in_is_not_ready(router: Bench) -> None:
    for name in ("prefill", "decode"):
        write(router.folder, said(name, Phase.READY))
    router.limit(stall_s=2).start(readiness=503)
    router.wait_status("waiting until it has taken its workers in")
    assert router.end() == SuperviseExit.STALLED
    assert "/readiness says 503 (insufficient healthy workers)" in router.state.words


def test_a_router_is_not_stalled_while_a_worker_loads_again(router: Bench) -> None:
    for name in ("prefill", "decode"):
        write(router.folder, said(name, Phase.READY))
    router.limit(stall_s=1).start(readiness=503)
    router.wait_status("starting the router")
    write(router.folder, said("decode", Phase.WEIGHTS, "loading weights 3/46"))
    router.wait_status("waiting until it has taken its workers in; dsv4-decode: loading weights 3/46")
    time.sleep(2)
    assert router.state.phase is Phase.WARMUP
    assert router.stop() == SuperviseExit.OK


def test_b74_a_half_is_proved_by_its_own_word_and_is_sent_no_generation(bench: Bench) -> None:
    for role in (Role.PREFILL, Role.DECODE):
        bench.instance = replace(bench.instance, role=role, bootstrap_port=bench.instance.port)
        bench.messages.clear()
        bench.start(route=200, generation=0).wait_ready()
        assert bench.stop() == SuperviseExit.OK


def test_a_prefill_whose_ranks_do_not_register_is_not_proved(bench: Bench) -> None:
    bench.instance = replace(bench.instance, role=Role.PREFILL, bootstrap_port=bench.instance.port)
    bench.limit(proof_s=1).start(route=503)
    assert bench.end() == SuperviseExit.PROOF
    assert "/route says 503" in bench.state.words


def test_a_router_that_waits_can_be_stopped(router: Bench) -> None:
    router.start(readiness=200)
    router.wait_status("waiting for dsv4-decode and dsv4-prefill")
    assert router.stop() == SuperviseExit.OK
    assert router.state.phase is Phase.STOPPED


# ---- a pair that changed while its router was down -------------------------------------------------------------------


def proved_with(router: Bench, *halves: RunState) -> None:
    """What the supervisor before has left: the pair that it was there for."""
    boot = procs.boot_id()
    known = tuple(Identity(boot, half.pid, half.start_ticks) for half in halves)
    before = replace(said("router", Phase.READY, start_ticks=1), met=known)
    (router.folder / "run/state.json").write_text(record.dump_state(before))


@contextlib.contextmanager
def another(state: RunState) -> Iterator[RunState]:
    """The same said by a supervisor of its own."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            identity = procs.identity(process.pid)
            assert identity is not None
            yield replace(state, pid=identity.pid, start_ticks=identity.start_ticks)
        finally:
            process.kill()


def test_b82_a_half_that_stayed_while_its_router_was_down_is_asked_to_start_again_where_the_transfer_demands_it(
    router: Bench,
) -> None:
    """B82: no traffic is called healthy before."""
    router.instance = replace(router.instance, together="nixl remembers")
    prefill, decode = said("prefill", Phase.READY), said("decode", Phase.READY)
    proved_with(router, prefill, replace(decode, start_ticks=1))
    with another(decode) as new_decode, another(prefill) as new_prefill:
        write(router.folder, prefill)
        write(router.folder, new_decode)
        router.start(readiness=200)
        router.wait_for(lambda: router.state.asks)
        asks = router.state.asks
        assert asks is not None
        assert asks.because == "dsv4-decode was started again: nixl remembers"
        assert (asks.pid, asks.start_ticks) == (prefill.pid, prefill.start_ticks)
        assert router.state.engine_pid == 0
        write(router.folder, new_prefill)
        router.wait_status("starting the router")
    assert router.journal.count("is asked to start again") == 1


def test_b82_a_router_whose_half_is_another_one_before_it_is_proved_does_not_bring_the_two_together(
    router: Bench,
) -> None:
    """B82: no traffic is called healthy before."""
    router.instance = replace(router.instance, together="nixl remembers")
    prefill, decode = said("prefill", Phase.READY), said("decode", Phase.READY)
    with another(decode) as new_decode:
        for half in (prefill, decode):
            write(router.folder, half)
        router.start(readiness=503)
        router.wait_status("waiting until it has taken its workers in")
        write(router.folder, new_decode)
        assert router.end() == SuperviseExit.PEER
    assert router.state.words == "dsv4-decode was started again before the router was proved: nixl remembers"
    # Whoever comes after it knows whom it was started for.
    assert [one.start_ticks for one in router.state.met] == [prefill.start_ticks, decode.start_ticks]


@pytest.mark.parametrize("together", ["", "nixl remembers"])
def test_a_router_that_comes_back_to_the_pair_that_it_was_proved_with_asks_nobody(router: Bench, together: str) -> None:
    router.instance = replace(router.instance, together=together)
    halves = (said("prefill", Phase.READY), said("decode", Phase.READY))
    proved_with(router, *halves)
    for half in halves:
        write(router.folder, half)
    router.start(readiness=200)
    router.wait_status("starting the router")
    assert router.state.asks is None
