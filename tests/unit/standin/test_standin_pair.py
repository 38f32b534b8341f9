"""A stand-in prefill and decode hand over, or do not, as their behaviour files say; without a router between them."""

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import probe
from dsv4ctl.clock import until
from dsv4ctl.probe import Answer
from dsv4ctl.rehearsal import environment
from tests.contract.engines import CLOCK, MODEL_NAME, Background, Build, Server, reply
from tests.contract.pairs import ALL_RANKS, counts, metric, queues

Begin = Callable[..., Server]
ROOMS = count(1)
CROSSED = "kv_transfer_latency_ms_count"


@dataclass(slots=True)
class Halves:
    """Starts both halves; `bootstrap_port` is the prefill's."""

    begin: Begin
    build: Build
    ports: Iterator[tuple[int, int]]
    bootstrap_port: int
    prefill: Server
    decode: Server

    def start(self, mode: str, at: tuple[int, int] | None = None, **keys: Any) -> Server:
        """Start one half, with short limits for what never comes."""
        limits = {"BOOTSTRAP_TIMEOUT": "1", "WAITING_TIMEOUT": "1"} if keys.pop("impatient", False) else {}
        more = tuple((f"SGLANG_DISAGGREGATION_{name}", value) for name, value in limits.items())
        # One rank each, without GPUs: what more ranks do is in the contract.
        engine = replace(self.build, environment=self.build.environment + more, tp=1, flags=("--device", "cpu"))
        words = ["--disaggregation-mode", mode, "--disaggregation-transfer-backend", "nixl", "--enable-metrics"]
        words += ["--disaggregation-bootstrap-port", str(self.bootstrap_port)]
        return self.begin(*words, engine=engine, at=at or next(self.ports), **keys)

    def cross(self, *, timeout_s: float = 5, prompt: str = "hello") -> tuple[Background, Background]:
        """Send one request to both halves, as a router does."""
        where = {"bootstrap_host": "127.0.0.1", "bootstrap_port": self.bootstrap_port, "bootstrap_room": next(ROOMS)}
        asked = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 6, **where}

        def ask(half: Server) -> Callable[[], Answer]:
            return lambda: half.post("/v1/completions", asked, timeout_s=timeout_s)

        return Background(ask(self.prefill)), Background(ask(self.decode))

    def route(self) -> int | None:
        """The status of the bootstrap server's route."""
        return probe.get(f"http://127.0.0.1:{self.bootstrap_port}/route?{ALL_RANKS}", "", timeout_s=2).status


Start = Callable[..., Halves]


@pytest.fixture
def start(begin: Begin, build: Build, ports: Iterator[tuple[int, int]]) -> Start:
    """Start both halves with a behaviour each, and wait until they are ready."""

    def both(prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None) -> Halves:
        made = Halves.__new__(Halves)
        made.begin, made.build, made.ports, made.bootstrap_port = begin, build, ports, next(ports)[1]
        made.prefill, made.decode = made.start("prefill", **prefill or {}), made.start("decode", **decode or {})
        made.prefill.wait_for()
        made.decode.wait_for()
        return made

    return both


def text(answer: Answer) -> str:
    return str(reply(answer)["choices"][0]["text"])


def test_a_request_crosses_and_both_halves_count_it(start: Start) -> None:
    halves = start()
    first, second = halves.cross()
    assert len(text(first.result(5)).split()) == 1
    assert len(text(second.result(5)).split()) == 6
    assert metric(halves.prefill, CROSSED) == 1
    told = [(count.arrived, count.finished) for count in map(counts, (halves.prefill, halves.decode))]
    # The warm-up is a request, too.
    assert told == [(2, 2), (2, 2)]


def test_a_text_with_a_refrain_is_gone_on_with_as_far_as_its_kv_came_over(start: Start) -> None:
    halves = start(None, {"wrong_tokens": "other"})
    song = "".join(f"8f14e45f {line}\n" for line in range(1, 9))
    first, second = halves.cross(prompt=song)
    assert text(first.result(5)) == "8f14e45f"
    assert "8f14e45f" not in text(second.result(5))


@pytest.mark.parametrize(
    ("half", "queue", "words"),
    [
        ("prefill", "prefill_inflight_queue_reqs", "timed out after 1.0s in KVPoll.WaitingForInput"),
        ("decode", "prefill_bootstrap_queue_reqs", "Prefill bootstrap failed for request rank=0"),
    ],
)
def test_nothing_is_handed_over(start: Start, half: str, queue: str, words: str) -> None:
    keys = {half: {"no_transfer": True}}
    halves = start({"impatient": True, **keys.get("prefill", {})}, {"impatient": True, **keys.get("decode", {})})
    first, second = halves.cross(timeout_s=3)
    assert until(lambda: queues(halves.prefill)[queue] == 1 or None, CLOCK, 2, 0.02)
    answers = [one.result(5) for one in (first, second)]
    assert 500 in [answer.status for answer in answers]
    assert words in str([answer.body for answer in answers])
    assert metric(halves.prefill, CROSSED) == 0
    assert counts(halves.decode).finished == 1
    assert until(lambda: set(queues(halves.prefill).values()) <= {"prefill", 0} or None, CLOCK, 5, 0.1)


@pytest.mark.parametrize(("half", "kind"), [("prefill", "repeated"), ("decode", "other")])
def test_what_is_handed_over_is_spoiled(start: Start, half: str, kind: str) -> None:
    halves = start(**{half: {"wrong_tokens": kind}})
    # Two of six words may well be the same by chance: there are not many that the stand-in says.
    said = [text(halves.cross()[1].result(5)) for _ in range(6)]
    assert all((len(set(one.split())) == 1) == (kind == "repeated") for one in said)
    assert (len(set(said)) == 1) == (kind == "repeated")


def test_kv_arrives_and_nothing_is_answered(start: Start) -> None:
    halves = start(None, {"decode_never_answers": True})
    first, second = halves.cross(timeout_s=1)
    assert first.result(5).status == 200
    assert metric(halves.prefill, CROSSED) == 1
    assert until(lambda: metric(halves.decode, "kv_transfer_alloc_ms_count") == 1 or None, CLOCK, 10, 0.02)
    assert halves.decode.status("/health") == 200
    assert second.result(5).status is None


@pytest.mark.parametrize("half", ["prefill", "decode"])
def test_a_request_without_a_room_ends_an_engine_that_cannot_bear_it(start: Start, half: str) -> None:
    halves = start(**{half: {"die_on_bare_generate": True}})
    victim: Server = getattr(halves, half)
    assert victim.status("/health") == 200
    bare: dict[str, object] = {"text": "hello", "sampling_params": {"max_new_tokens": 2}}
    assert victim.post("/generate", bare, timeout_s=5).status is None
    assert victim.wait_end(5)[0] == -9
    assert "AssertionError: bootstrap_room is None" in victim.said()


@pytest.mark.parametrize("stale", [False, True])
def test_a_prefill_serves_a_new_decode_at_the_same_address_unless_it_keeps_the_old_one(
    start: Start, *, stale: bool
) -> None:
    halves = start({"stale_peer": stale})
    assert halves.cross()[1].result(5).status == 200
    _kill(halves.decode)
    halves.decode = halves.start("decode", at=(halves.decode.port, halves.decode.rendezvous))
    halves.decode.wait_for()
    assert halves.cross(timeout_s=2)[1].result(5).status == (None if stale else 200)


@pytest.mark.parametrize("stale", [False, True])
def test_a_decode_finds_a_new_prefill_at_the_same_address_unless_it_keeps_the_old_one(
    start: Start, *, stale: bool
) -> None:
    halves = start(None, {"stale_peer": stale})
    assert halves.cross()[1].result(5).status == 200
    _kill(halves.prefill)
    halves.prefill = halves.start("prefill", at=(halves.prefill.port, halves.prefill.rendezvous))
    halves.prefill.wait_for()
    assert halves.cross(timeout_s=3)[1].result(5).status == (None if stale else 200)


def _kill(server: Server) -> None:
    server.process.kill()
    server.wait_end(5)


def test_a_prefill_that_registers_late_is_ready_before_anybody_can_find_it(start: Start) -> None:
    halves = start({"register_late_s": 3.0})
    assert (halves.prefill.status("/ready"), halves.route()) == (200, 503)
    answer = halves.cross(timeout_s=10)[1].result(10)
    assert (answer.status, halves.route()) == (200, 200)
    assert "Failed to get prefill server info: 503" in halves.decode.said()


def test_a_client_that_gives_up_leaves_nothing_behind_in_the_queues(start: Start) -> None:
    halves = start({"no_transfer": True})
    first, second = halves.cross(timeout_s=1)
    assert until(lambda: queues(halves.decode)["decode_transfer_queue_reqs"] == 1 or None, CLOCK, 2, 0.02)
    assert (first.result(3).status, second.result(3).status) == (None, None)
    left = lambda: sum(n for half in (halves.prefill, halves.decode) for n in _numbers(half)) == 0 or None  # noqa: E731
    assert until(left, CLOCK, 3, 0.05)


def _numbers(half: Server) -> list[int]:
    return [number for name, number in queues(half).items() if name.endswith("_queue_reqs")]


def test_a_transfer_that_takes_its_time_is_in_the_queues_of_both_and_open_at_a_stop(start: Start) -> None:
    halves = start({"transfer_s": 1.0})
    first, second = halves.cross()
    assert until(lambda: queues(halves.prefill)["prefill_inflight_queue_reqs"] == 1 or None, CLOCK, 2, 0.02)
    assert queues(halves.decode)["decode_transfer_queue_reqs"] == 1
    halves.prefill.process.send_signal(signal.SIGTERM)
    assert (first.result(5).status, second.result(5).status) == (200, 200)
    assert halves.prefill.wait_end(5)[0] == 0
    assert "stand-in: 1 requests open at SIGTERM, 1 of them being sent" in halves.prefill.said()


def test_dp_ranks_of_rooms_are_kept(start: Start) -> None:
    url = f"http://127.0.0.1:{start().bootstrap_port}"
    assert probe.post(f"{url}/register_dp_rank", {"bootstrap_room": 5, "dp_rank": 0}, "", timeout_s=2).status == 200
    asked = probe.post(f"{url}/query_dp_ranks", {"bootstrap_rooms": [5, 6]}, "", timeout_s=2)
    assert json.loads(asked.body) == {"5": 0}


def test_without_the_module_that_moves_kv_the_load_ends_when_it_is_over(
    begin: Begin, build: Build, tmp_path: Path
) -> None:
    python = environment.install(tmp_path / "venv", base_python=sys.executable)
    (nixl,) = (tmp_path / "venv").glob("lib/*/site-packages/nixl")
    shutil.rmtree(nixl)
    engine = replace(build, python=python)
    server = begin("--disaggregation-mode", "decode", "--disaggregation-transfer-backend", "nixl", engine=engine)
    assert server.wait_end(20)[0] == -9
    assert server.said().index("Load weight end.") < server.said().index("ImportError: Please install NIXL")


def test_a_prefill_cannot_hand_over_by_nothing(begin: Begin) -> None:
    server = begin("--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "fake")
    assert server.wait_end(10)[0] == 1
    assert "Prefill server does not support 'fake' as the transfer backend" in server.said()
