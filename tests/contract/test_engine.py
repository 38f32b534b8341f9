"""What dsv4ctl relies on in an engine that serves, asked of the stand-in and of the real SGLang alike."""

import json
from collections.abc import Callable
from itertools import pairwise

from dsv4ctl import procs, sockets
from dsv4ctl.engine import log
from dsv4ctl.model import Phase
from tests.contract.engines import KEY, MARKER, MODEL_NAME, Server, go_on, reply, stop

Start = Callable[..., Server]
Shared = Callable[..., Server]
ORDER = list(Phase)


def test_models_are_listed_while_readiness_and_health_still_say_503(shared: Shared) -> None:
    server = shared("/v1/models")
    seen = {path: server.status(path) for path in ("/ready", "/health", "/health_generate", "/ping")}
    warming = "The server is fired up" not in server.said()
    server.wait_for()
    assert warming
    assert seen == dict.fromkeys(seen, 503)
    assert {path: server.status(path) for path in seen} == dict.fromkeys(seen, 200)


def test_the_port_is_bound_only_after_the_load_and_before_the_warm_up(server: Server) -> None:
    signs = ("max_total_num_tokens=", "Uvicorn running on", "The server is fired up and ready to roll!")
    assert [server.said().index(sign) for sign in signs] == sorted(server.said().index(sign) for sign in signs)


def test_the_tree_is_a_main_process_a_tracker_schedulers_and_a_detokenizer(server: Server) -> None:
    titles = server.titles()
    trackers = {title for title in titles if "multiprocessing.resource_tracker" in title}
    assert titles.keys() - trackers == {*server.build.schedulers, "sglang::detokenizer"}
    assert len(trackers) == 1
    children = [one for one in server.members() if one.pid != server.pid]
    assert {one.parent_pid for one in children} == {server.pid}
    assert {(one.group, one.session) for one in server.members()} == {(server.pid, server.pid)}
    assert {one.comm for one in children} >= {"sglang::schedul", "sglang::detoken"}


def test_the_main_process_keeps_its_command_line_and_environment(server: Server) -> None:
    main = procs.read(server.pid)
    assert main is not None
    assert f"-m sglang.launch_server --model-path {server.build.model}" in main.command
    assert procs.environment(server.pid)[MARKER] == "1"


def test_workers_wipe_their_environment(server: Server) -> None:
    for title, pid in server.titles().items():
        kept = "resource_tracker" in title
        assert (MARKER in procs.environment(pid)) == kept, title


def test_every_listener_belongs_to_the_tree_and_the_rendezvous_listens_on_all_addresses(server: Server) -> None:
    main, first = server.pid, server.scheduler().pid
    assert _listens(server.port) == {("127.0.0.1", main)}
    assert {pid for _address, pid in _listens(server.rendezvous)} == {first}
    assert {address for address, _pid in _listens(server.rendezvous)} <= {"*", "::", "0.0.0.0"}  # noqa: S104 -- compared


def _listens(port: int) -> set[tuple[str, int]]:
    return {(holder.listener.address, process.pid) for holder in sockets.holders(port) for process in holder.processes}


def test_health_takes_a_second_and_ready_does_not(server: Server) -> None:
    health, generated, ready = (server.get(path) for path in ("/health", "/health_generate", "/ready"))
    assert (health.status, generated.status, ready.status) == (200, 200, 200)
    # The second is its own; how much longer it takes than the other is the host's.
    assert min(health.seconds, generated.seconds) >= 1.0
    assert ready.seconds < health.seconds


def test_a_generation_has_text_and_as_many_tokens_as_asked_for(server: Server) -> None:
    asked = {"model": MODEL_NAME, "max_tokens": 4, "temperature": 0}
    completion = reply(server.post("/v1/completions", {**asked, "prompt": "hello"}))
    chat = reply(server.post("/v1/chat/completions", {**asked, "messages": [{"role": "user", "content": "hello"}]}))
    native = reply(server.post("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 4}}))
    assert (completion["object"], chat["object"]) == ("text_completion", "chat.completion")
    assert completion["choices"][0]["text"].strip()
    assert isinstance(chat["choices"][0]["message"]["content"], str)
    assert {reply["usage"]["completion_tokens"] for reply in (completion, chat)} == {4}
    assert native["meta_info"]["completion_tokens"] == len(native["output_ids"]) == 4


def test_a_streamed_chat_comes_in_parts_and_ends_with_done(server: Server) -> None:
    said = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
    events = server.post("/v1/chat/completions", said).body.decode().strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    parts = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert parts[-1]["choices"][0]["finish_reason"] == "length"


def test_requests_that_make_no_sense_are_refused_as_such(server: Server) -> None:
    assert server.post("/v1/completions", {"model": MODEL_NAME}).status == 400
    assert server.post("/generate", {}).status == 400
    assert server.status("/no/such/path") == 404
    assert server.status("/get_load") == 404
    assert server.status("/generate") == 405


def test_models_tell_the_served_name_and_the_context_length(server: Server) -> None:
    model = reply(server.get("/v1/models"))["data"][0]
    assert (model["id"], model["max_model_len"]) == (MODEL_NAME, 2048)


def test_the_load_is_told_with_the_fields_that_status_and_drain_read(server: Server) -> None:
    loads = reply(server.get("/v1/loads"))
    (load,) = loads["loads"]
    assert loads["version"] == "0.5.23"
    assert {"num_running_reqs", "num_waiting_reqs", "num_used_tokens", "max_total_num_tokens"} <= load.keys()
    assert {"max_running_requests", "token_usage", "gen_throughput", "memory"} <= load.keys()
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 0)


def test_server_info_tells_version_capacity_and_the_key_in_clear(server: Server) -> None:
    info = reply(server.get("/server_info"))
    assert (info["version"], info["port"], info["tp_size"]) == ("0.5.23", server.port, server.build.tp)
    assert info["max_total_num_tokens"] == reply(server.get("/v1/loads"))["loads"][0]["max_total_num_tokens"]
    assert info["max_req_input_len"] < 2048
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] > 0
    assert info["startup_time"].keys() >= {"load_weight", "kv_cache_allocation", "scheduler_e2e", "cuda_graph"}
    assert info["api_key"] == KEY
    assert KEY in info["launch_command"]


def test_the_log_holds_the_key_in_clear_and_argv_does_not(server: Server) -> None:
    main = procs.read(server.pid)
    assert repr(KEY) in server.said()
    assert main is not None
    assert KEY not in main.command


def test_metrics_tell_the_capacity(server: Server) -> None:
    lines = server.get("/metrics").body.decode().splitlines()
    assert any(line.startswith("sglang:max_total_num_tokens{") and MODEL_NAME in line for line in lines)


def test_without_the_key_only_health_readiness_and_metrics_are_open(server: Server) -> None:
    for key, health in (("", "/health"), ("wrong", "/health_generate")):
        opened = {path: server.get(path, key=key).status for path in ("/ready", health, "/metrics")}
        closed = {
            path: server.get(path, key=key).status for path in ("/ping", "/v1/models", "/server_info", "/v1/loads")
        }
        assert opened == dict.fromkeys(opened, 200)
        assert closed == dict.fromkeys(closed, 401)


def test_the_log_lines_parse_into_phases_in_their_order(server: Server) -> None:
    events = server.events()
    loading = events[: next(at for at, event in enumerate(events) if isinstance(event, log.ReadyLine))]
    phases = [event.phase for event in loading if isinstance(event, log.PhaseSeen | log.Progress)]
    assert list(dict.fromkeys(phases)) == sorted(map(Phase, server.build.phases), key=ORDER.index)
    assert all(ORDER.index(before) <= ORDER.index(after) for before, after in pairwise(dict.fromkeys(phases)))
    (capacity,) = [event.capacity for event in loading if isinstance(event, log.CapacitySeen)]
    assert (capacity.context_length, capacity.available_gb is not None) == (2048, True)
    assert capacity.max_total_tokens == reply(server.get("/v1/loads"))["loads"][0]["max_total_num_tokens"]
    assert not [event for event in loading if isinstance(event, log.TroubleSeen)]


def test_progress_bars_count_up_to_their_total(server: Server) -> None:
    bars = [event for event in server.events() if isinstance(event, log.Progress)]
    for phase in {bar.phase for bar in bars}:
        done = [bar.done for bar in bars if bar.phase is phase]
        assert done == sorted(done)
        assert done[-1] == bars[[bar.phase for bar in bars].index(phase)].total
    assert {"weights", "graphs"} <= {bar.phase for bar in bars} or server.build.name == "sglang"


def test_a_stopped_scheduler_leaves_readiness_at_200_and_makes_server_info_hang(server: Server) -> None:
    first = server.scheduler()
    stop(first)
    try:
        assert server.status("/ready") == 200
        assert server.status("/v1/models") == 200
        assert server.status("/v1/loads") == 200
        assert server.get("/server_info", timeout_s=1).status is None
        assert [server.get(path, timeout_s=1.5).status for path in ("/health", "/health_generate")] == [None, None]
    finally:
        go_on(first)
    assert server.status("/health") == 200


def test_the_loser_of_a_port_ends_with_3_after_its_load_and_harms_nobody(begin: Start, server: Server) -> None:
    loser = begin(port=server.port)
    status, _seconds = loser.wait_end(loser.build.start_limit_s)
    text = loser.said()
    assert status == 3
    assert text.index("max_total_num_tokens=") < text.index("[Errno 98] error while attempting to bind on address")
    # Its warm-up has talked to the winner.
    assert "The server is fired up and ready to roll!" in text
    assert loser.members() == ()
    assert server.status("/health") == 200
