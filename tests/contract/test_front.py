"""A router under its supervisor: whom it sends to, and what becomes of a pair of which a half was started again.

The router is the real one; the halves are stand-ins whose supervisors' words the tests write.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import procs, record
from dsv4ctl.clock import until
from dsv4ctl.model import Instance, Limits, Peer, Phase, Role, RunState
from dsv4ctl.supervise.rotation import Listing, take_in, take_out
from tests import releases
from tests.contract.conftest import standin
from tests.contract.engines import CLOCK, MODEL_NAME, PATIENCE_S, Background
from tests.contract.pairs import APART, Pair, Router, queues, unstarted


@dataclass
class Front:
    """A pair, and a supervisor with the router."""

    pair: Pair
    folder: Path
    instance: Instance
    process: subprocess.Popen[bytes]

    @property
    def state(self) -> RunState:
        """What the router's supervisor said last."""
        return record.load_state((self.folder / "router/state.json").read_text())

    @property
    def journal(self) -> str:
        """What it has logged."""
        return (self.folder / "journal").read_text(errors="replace")

    def say(self, mode: str, phase: Phase) -> None:
        """Say of a half what its supervisor would; the engine itself stands for that."""
        identity = self.pair.current[mode].identity
        now = time.time()
        state = RunState(
            name=mode,
            digest="d",
            phase=phase,
            words=str(phase),
            since=now,
            started_at=now,
            pid=identity.pid,
            start_ticks=identity.start_ticks,
        )
        (self.folder / mode).mkdir(exist_ok=True)
        (self.folder / mode / "new").write_text(record.dump_state(state))
        (self.folder / mode / "new").rename(self.folder / mode / "state.json")

    def renew(self, mode: str, **behaviour: Any) -> None:
        """Kill a half and have it come back."""
        self.pair.current[mode].process.kill()
        self.pair.current[mode].wait_end()
        self.pair.start(mode, **behaviour)
        self.say(mode, Phase.WEIGHTS)
        self.pair.current[mode].wait_for()
        self.say(mode, Phase.READY)

    def wait(self, what: Callable[[], object]) -> None:
        """Wait until something holds."""
        assert until(lambda: what() or None, CLOCK, PATIENCE_S, 0.1), f"{self.state}\n{self.journal[-4000:]}"

    def is_whole(self) -> bool:
        """Whether the router serves, and nothing is amiss."""
        has_spoken = (self.folder / "router/state.json").exists()
        return has_spoken and self.state.phase is Phase.READY and "degraded" not in self.state.words


def instance(pair: Pair, together: str) -> Instance:
    """The router's instance at the ports of the bed."""
    made = next(one for one in releases.render(releases.spec("pd")).instances if one.role is Role.ROUTER)
    ports = {"prefill": (pair.prefill_port, pair.bootstrap_port), "decode": (pair.decode_port, None)}
    return replace(
        made,
        host="127.0.0.1",
        port=pair.router_port,
        metrics_port=pair.router_port + APART,
        served_model_name=MODEL_NAME,
        together=together,
        limits=Limits(proof_s=5),
        peers=tuple(replace(p, port=ports[p.name][0], bootstrap_port=ports[p.name][1]) for p in made.peers),
    )


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A whole pair behind a router whose supervisor serves."""
    with fronted(tmp_path_factory.mktemp("front"), "", first=70) as made:
        yield made


@contextmanager
def fronted(folder: Path, together: str, *, first: int) -> Iterator[Front]:
    """Such a pair. `together`: why one half may not come back alone; `first`: which of the free ports are its own."""
    build = replace(standin(folder), tp=1, flags=("--device", "cpu", "--enable-metrics"))
    pair = unstarted(build, folder, first=first)
    asked = instance(pair, together)
    (folder / "router").mkdir()
    (folder / "router.json").write_text(record.dump_instance(asked))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dsv4ctl.supervise", str(folder / "router.json"), "--", *pair.router_argv()],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "*", "RUNTIME_DIRECTORY": f"{folder}/router"},
        stderr=(folder / "journal").open("wb"),
    )
    supervisor = procs.identity(process.pid)
    assert supervisor is not None
    pair.router = Router(port=pair.router_port, process=process, identity=supervisor)
    made = Front(pair, folder, asked, process)
    try:
        for mode in ("prefill", "decode"):
            pair.start(mode)
            pair.current[mode].wait_for()
            made.say(mode, Phase.READY)
        made.wait(made.is_whole)
        yield made
    finally:
        process.terminate()
        process.wait(30)
        pair.end()


def peer(front: Front, name: str) -> Peer:
    return next(one for one in front.instance.peers if one.name == name)


def test_a_worker_that_drains_is_sent_nothing_while_what_it_has_in_hand_comes_to_its_end(front: Front) -> None:
    pair = front.pair
    stream = Background(lambda: pair.complete("a stream", 150, stream=True))
    assert until(lambda: (pair.decode.get("/v1/loads").json() and _running(pair)) or None, CLOCK, PATIENCE_S, 0.05)
    front.say("decode", Phase.DRAINING)
    front.wait(lambda: front.state.without == ("decode",))
    assert pair.workers() == {"prefill"}
    assert pair.complete("another").status == 503
    assert b"[DONE]" in stream.result(PATIENCE_S).body
    assert "degraded: peer down (dsv4-decode: draining)" in front.state.words
    front.say("decode", Phase.READY)
    front.wait(lambda: front.state.without == () and front.is_whole())
    assert pair.complete("another").status == 200
    assert front.state.asks is None


def _running(pair: Pair) -> bool:
    found = pair.decode.get("/v1/loads").json()
    return bool(isinstance(found, dict) and found["loads"][0]["num_running_reqs"])


def test_b82_after_a_half_was_started_again_the_pair_is_probed_and_nobody_else_is_restarted(front: Front) -> None:
    """B82: after any worker restart the end-to-end probe runs; no traffic is called healthy before."""
    before = front.journal.count("probe of the pair: ok")
    prefill = front.pair.prefill.identity
    front.renew("decode")
    front.wait(lambda: front.journal.count("probe of the pair: ok") == before + 1)
    front.wait(front.is_whole)
    assert front.pair.prefill.identity == prefill
    assert front.state.asks is None


def test_b82_where_the_probe_fails_the_half_that_stayed_is_asked_once_and_then_it_is_said_that_it_does_not_answer(
    front: Front,
) -> None:
    """B82: on failure the policy is applied in order and logged."""
    stayed = front.pair.decode.identity
    front.renew("prefill", no_transfer=True)
    front.wait(lambda: front.state.asks)
    asks = front.state.asks
    assert asks is not None
    assert (asks.unit, asks.pid, asks.start_ticks) == ("dsv4-decode.service", stayed.pid, stayed.start_ticks)
    assert "the pair does not answer since dsv4-prefill was started again (hand-off)" in asks.because
    front.renew("decode")
    front.wait(lambda: "degraded: the pair does not answer (hand-off:" in front.state.words)
    assert front.journal.count("is asked to start again, once") == 1
    front.renew("prefill")
    front.wait(front.is_whole)
    assert front.process.poll() is None


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_the_list_of_the_router_is_changed_by_address_and_twice_is_once(front: Front, name: str) -> None:
    listing, one = Listing(front.pair.router.url, "", CLOCK), peer(front, name)
    for _ in range(2):
        assert take_out(listing, one).out
        assert len(listing.read() or ()) == 1
    for _ in range(2):
        assert take_in(listing, one).trouble == ""
        assert len(listing.read() or ()) == 2
    front.pair.wait_for_router(200)
    assert front.pair.complete("again").status == 200
    assert queues(front.pair.prefill)["mode"] == "prefill"


def test_a_router_that_does_not_answer_is_told_as_trouble() -> None:
    nobody = Listing("http://127.0.0.1:1", "", CLOCK)
    assert take_out(nobody, Peer(name="decode", role=Role.DECODE, unit="u", host="127.0.0.1", port=2)).trouble


def test_b82_halves_that_must_not_meet_are_kept_apart_and_restarted_together_and_whole_only_when_proved(
    tmp_path: Path,
) -> None:
    """B82: no traffic is called healthy before."""
    with fronted(tmp_path, "nixl remembers", first=90) as front:
        pair, stayed = front.pair, front.pair.prefill.identity
        assert [one.pid for one in front.state.proved] == [stayed.pid, pair.decode.identity.pid]
        pair.decode.process.kill()
        pair.decode.wait_end()
        # Before the other one is back: it is asked, and the router sends nothing to it any more.
        front.wait(lambda: front.state.asks and front.state.without == ("prefill",))
        asks = front.state.asks
        assert asks is not None
        assert (asks.unit, asks.pid, asks.hurried) == ("dsv4-prefill.service", stayed.pid, True)
        assert asks.because == "dsv4-decode died: nixl remembers"
        pair.start("decode")
        pair.decode.wait_for()
        front.say("decode", Phase.READY)
        front.wait(lambda: "decode is ready again" in front.journal)
        together = "degraded: both halves are restarted together, for dsv4-decode was started again"
        front.wait(lambda: front.state.words.endswith(together))
        # The half that stayed is well by its own supervisor's word still, and nobody is sent to it.
        assert (pair.complete("to whom").status, front.state.without) == (503, ("prefill",))
        front.renew("prefill")
        front.wait(front.is_whole)
        assert [one.pid for one in front.state.proved] == [pair.prefill.identity.pid, pair.decode.identity.pid]
        assert pair.complete("again").status == 200
        assert front.journal.count("is asked to start again, once") == 1
