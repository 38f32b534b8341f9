"""What dsv4ctl relies on in a prefill, a decode and the router between them: the stand-ins and the real SGLang alike.

The router is the real one in both cases.
"""

import json
import signal
from collections.abc import Iterator

import pytest

from dsv4ctl import procs, sockets
from dsv4ctl.clock import until
from dsv4ctl.engine.counters import Counts
from tests.contract.engines import CLOCK, MODEL_NAME, PATIENCE_S, Background, Build, reply
from tests.contract.pairs import Pair, counts, metric, queues, unstarted

PROMPT = "the nonce is 8f14e45fceea167a5a36dedd4bea2543"
BARE = "Disaggregated request received without bootstrap room id"


@pytest.fixture(scope="module")
def pair(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The prefill and the router first, then the decode, watched meanwhile."""
    # The first ports are those of the other tests' engines.
    made = unstarted(build, tmp_path_factory.mktemp("pair"), first=60)
    try:
        prefill = made.start("prefill")
        made.start_router()
        made.seen["prefill"] = made.watch(prefill)
        assert until(lambda: "prefill" in made.workers() or None, CLOCK, PATIENCE_S, 0.1)
        made.seen["router"] = (made.router.status("/health"), made.router.status("/readiness"))
        made.seen["alone"] = made.complete(PROMPT).status
        made.start("decode").wait_for()
        made.wait_for_router(200)
        yield made
    finally:
        made.end()


@pytest.fixture
def healthy(pair: Pair) -> Pair:
    """The pair with all its parts running."""
    pair.heal()
    return pair


def test_the_bootstrap_server_is_up_before_the_load_and_says_503_until_all_ranks_are_registered(pair: Pair) -> None:
    seen = pair.seen["prefill"]
    assert (200, 503, None) in seen
    assert {route for _health, route, _ready in seen} <= {None, 503, 200}
    # Registered before it is ready, and the port is the main process's.
    assert {ready for _health, route, ready in seen if route == 200} <= {None, 503}
    assert pair.route()["attn_tp_size"] == pair.build.tp
    assert pair.route()["prefill_http_port"] == pair.prefill.port
    holders = {one.pid for holder in sockets.holders(pair.bootstrap_port) for one in holder.processes}
    assert holders == {pair.prefill.pid}
    assert pair.bootstrap("/route") == 400


def test_the_router_is_not_ready_with_a_prefill_alone_though_it_says_that_it_is_healthy(pair: Pair) -> None:
    assert pair.seen["router"] == (200, 503)
    assert pair.seen["alone"] == 503


def test_each_half_says_in_its_log_that_its_own_warm_up_is_over(healthy: Pair) -> None:
    for half in (healthy.prefill, healthy.decode):
        signs = ("Start of pd disaggregation warmup ...", "End of disaggregation warmup", "The server is fired up")
        assert [half.said().index(sign) for sign in signs] == sorted(half.said().index(sign) for sign in signs)
    assert "CommonKVBootstrapServer started successfully on 127.0.0.1:" in healthy.prefill.said()


def test_what_comes_through_the_router_is_what_one_server_says(healthy: Pair) -> None:
    sampling = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
    asked: dict[str, object] = {"text": PROMPT, "sampling_params": sampling}
    crossed = reply(healthy.router.post("/generate", asked))
    text = reply(healthy.complete(PROMPT, 12))["choices"][0]["text"]
    alone = healthy.begin(next(healthy.ports)[0], "--context-length", "2048")
    alone.wait_for()
    single = reply(alone.post("/generate", asked))
    completion = {"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    same = reply(alone.post("/v1/completions", completion))["choices"][0]["text"]
    alone.end()
    assert len(crossed["output_ids"]) == 12
    assert crossed["output_ids"] == single["output_ids"]
    assert text == same


def test_a_request_without_a_room_is_refused_and_nothing_else_happens(healthy: Pair) -> None:
    said = [{"role": "user", "content": "hello"}]
    chat: dict[str, object] = {"model": MODEL_NAME, "messages": said, "max_tokens": 4, "stream": True}
    for half in (healthy.prefill, healthy.decode):
        plain = half.post("/v1/completions", {"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 4})
        native = half.post("/generate", {"text": PROMPT, "sampling_params": {"max_new_tokens": 4}})
        streamed = half.post("/v1/chat/completions", chat)
        assert (plain.status, native.status) == (400, 400)
        assert BARE in plain.body.decode()
        assert BARE in native.body.decode()
        # Its status went out before the scheduler had a look at it.
        assert (streamed.status, BARE in streamed.body.decode()) == (200, True)
        assert (half.status("/ready"), half.alive()) == (200, True)


def test_a_request_that_crosses_moves_the_counters_of_both_halves_and_a_health_check_moves_none(healthy: Pair) -> None:
    halves = (healthy.prefill, healthy.decode)
    before = [counts(half) for half in halves]
    assert [half.status("/health") for half in halves] == [200, 200]
    assert [counts(half) for half in halves] == before
    assert healthy.complete(PROMPT, 5).status == 200
    # The real engine publishes them a moment later.
    assert until(lambda: _counted(healthy, before) or None, CLOCK, PATIENCE_S, 0.2), (
        before,
        [counts(half) for half in halves],
    )
    after = [counts(half) for half in halves]
    assert [now.generated_tokens - then.generated_tokens for now, then in zip(after, before, strict=True)] == [1, 5]
    assert [now.failed for now in after] == [0, 0]
    assert metric(healthy.prefill, "kv_transfer_latency_ms_count") >= 1


def _counted(pair: Pair, before: list[Counts]) -> bool:
    now = [counts(half) for half in (pair.prefill, pair.decode)]
    return all(
        (after.arrived - then.arrived, after.finished - then.finished) == (1, 1)
        for after, then in zip(now, before, strict=True)
    )


def test_loads_tell_each_half_and_a_decode_that_waits_for_kv_has_it_in_its_transfer_queue(healthy: Pair) -> None:
    assert (queues(healthy.prefill)["mode"], queues(healthy.decode)["mode"]) == ("prefill", "decode")
    asked: dict[str, object] = {"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    where = {"bootstrap_host": "127.0.0.1", "bootstrap_port": healthy.bootstrap_port, "bootstrap_room": 4711}
    waiting = Background(lambda: healthy.decode.post("/v1/completions", {**asked, **where}))
    assert until(lambda: _in_transfer(healthy) == 1 or None, CLOCK, PATIENCE_S, 0.1)
    late = healthy.prefill.post("/v1/completions", {**asked, **where})
    assert (late.status, waiting.result(PATIENCE_S).status) == (200, 200)
    assert until(lambda: _in_transfer(healthy) == 0 or None, CLOCK, PATIENCE_S, 0.1)


def _in_transfer(pair: Pair) -> int:
    return int(queues(pair.decode)["decode_transfer_queue_reqs"])


def _stream(pair: Pair) -> Background:
    """A long stream through the router, on its way."""
    stream = Background(lambda: pair.complete(PROMPT, pair.build.stream_tokens // 4, stream=True))
    running = lambda: json.loads(pair.decode.get("/v1/loads").body)["loads"][0]["num_running_reqs"] or None  # noqa: E731
    assert until(running, CLOCK, PATIENCE_S, 0.05)
    return stream


def _is_whole(stream: Background) -> bool:
    """Whether a stream came to its end with all its tokens."""
    events = stream.result(PATIENCE_S).body.decode().strip().split("\n\n")
    parts = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-1]]
    return events[-1] == "data: [DONE]" and parts[-1]["finish_reason"] == "length" and len(parts) > 1


def test_a_router_that_is_stopped_closes_its_port_at_once_and_lets_a_stream_finish(healthy: Pair) -> None:
    stream = _stream(healthy)
    healthy.router.process.send_signal(signal.SIGTERM)
    assert until(lambda: healthy.router.status("/health") is None or None, CLOCK, PATIENCE_S, 0.02)
    assert procs.alive(healthy.router.identity)
    assert _is_whole(stream)
    assert healthy.router.process.wait(PATIENCE_S) == 0


def test_a_decode_that_is_stopped_lets_a_stream_finish_and_ends_with_0(healthy: Pair) -> None:
    stream = _stream(healthy)
    healthy.decode.process.send_signal(signal.SIGTERM)
    assert until(lambda: healthy.decode.status("/ready") == 503 or None, CLOCK, PATIENCE_S, 0.02)
    assert _is_whole(stream)
    assert healthy.decode.wait_end()[0] == 0
    assert healthy.prefill.status("/ready") == 200


def test_a_killed_decode_makes_the_router_unready_and_a_new_one_is_served_without_the_prefill_restarted(
    healthy: Pair,
) -> None:
    prefill = healthy.prefill.identity
    healthy.decode.process.kill()
    healthy.decode.wait_end()
    healthy.wait_for_router(503)
    assert healthy.complete(PROMPT).status == 503
    assert healthy.prefill.status("/ready") == 200
    healthy.heal()
    assert healthy.complete(PROMPT).status == 200
    assert healthy.prefill.identity == prefill


def test_a_killed_prefill_fails_what_waits_for_it_and_a_new_one_is_found_without_the_decode_restarted(
    healthy: Pair,
) -> None:
    decode = healthy.decode
    asked: dict[str, object] = {"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 4}
    where = {"bootstrap_host": "127.0.0.1", "bootstrap_port": healthy.bootstrap_port, "bootstrap_room": 4712}
    waiting = Background(lambda: decode.post("/v1/completions", {**asked, **where}))
    assert until(lambda: _in_transfer(healthy) == 1 or None, CLOCK, PATIENCE_S, 0.1)
    healthy.prefill.process.kill()
    healthy.prefill.wait_end()
    failed = waiting.result(PATIENCE_S)
    assert failed.status == 500
    assert f"Lost connection with prefill instance (bootstrap_addr: 127.0.0.1:{healthy.bootstrap_port})" in str(
        failed.body
    )
    assert "Attempting to reconnect to 127.0.0.1" in decode.said()
    healthy.wait_for_router(503)
    assert healthy.complete(PROMPT).status == 503
    assert decode.status("/ready") == 200
    healthy.heal()
    assert healthy.complete(PROMPT).status == 200
    assert healthy.decode is decode
    assert decode.alive()


def test_a_second_prefill_on_the_same_bootstrap_port_only_logs_that_and_becomes_ready(healthy: Pair) -> None:
    second = healthy.start("prefill", port=next(healthy.ports)[0])
    second.wait_for()
    assert "Server error: [Errno 98] error while attempting to bind on address ('127.0.0.1'" in second.said()
    assert second.status("/health") == 200
    second.end()


def test_a_prefill_that_is_stopped_ends_with_0_and_frees_its_bootstrap_port(healthy: Pair) -> None:
    healthy.prefill.process.send_signal(signal.SIGTERM)
    assert healthy.prefill.wait_end()[0] == 0
    assert healthy.bootstrap("/health") is None
    assert sockets.blocked("127.0.0.1", healthy.bootstrap_port) == ""
