"""What dsv4ctl relies on in an engine, said once and asked of the stand-in and of the real SGLang alike."""

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from dsv4ctl import probe, procs, sockets
from dsv4ctl.clock import until
from dsv4ctl.engine import log
from dsv4ctl.engine.options import parse_help
from dsv4ctl.model import Phase
from tests.contract.engines import CLOCK, KEY, MARKER, MODEL_NAME, Build, Server, go_on, stop

Start = Callable[..., Server]
Shared = Callable[..., Server]
ORDER = list(Phase)


# ---- one server that several tests look at ---------------------------------------------------------------------------


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
    health, ready = server.get("/health"), server.get("/ready")
    assert (health.status, ready.status) == (200, 200)
    assert 1.0 <= health.seconds < 1.5
    assert ready.seconds < 0.5


def test_a_generation_has_text_and_as_many_tokens_as_asked_for(server: Server) -> None:
    asked = {"model": MODEL_NAME, "max_tokens": 4, "temperature": 0}
    completion = _json(server.post("/v1/completions", {**asked, "prompt": "hello"}))
    chat = _json(server.post("/v1/chat/completions", {**asked, "messages": [{"role": "user", "content": "hello"}]}))
    native = _json(server.post("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 4}}))
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
    model = _json(server.get("/v1/models"))["data"][0]
    assert (model["id"], model["max_model_len"]) == (MODEL_NAME, 2048)


def test_the_load_is_told_with_the_fields_that_status_and_drain_read(server: Server) -> None:
    loads = _json(server.get("/v1/loads"))
    (load,) = loads["loads"]
    assert loads["version"] == "0.5.23"
    assert {"num_running_reqs", "num_waiting_reqs", "num_used_tokens", "max_total_num_tokens"} <= load.keys()
    assert {"max_running_requests", "token_usage", "gen_throughput", "memory"} <= load.keys()
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 0)


def test_server_info_tells_version_capacity_and_the_key_in_clear(server: Server) -> None:
    info = _json(server.get("/server_info"))
    assert (info["version"], info["port"], info["tp_size"]) == ("0.5.23", server.port, server.build.tp)
    assert info["max_total_num_tokens"] == _json(server.get("/v1/loads"))["loads"][0]["max_total_num_tokens"]
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
    assert capacity.max_total_tokens == _json(server.get("/v1/loads"))["loads"][0]["max_total_num_tokens"]
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
        assert server.get("/health", timeout_s=1.5).status is None
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


# ---- ends, each of which costs a server ------------------------------------------------------------------------------


def test_sigterm_to_an_idle_server_ends_it_with_0_and_leaves_files_but_no_process(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    draining = until(lambda: server.status("/ready") == 503 or None, CLOCK, 1, 0.02)
    status, seconds = server.wait_end(30)
    assert draining
    assert (status, server.members()) == (0, ())
    assert seconds < 15
    assert [segment.name[:13] for segment in server.segments if segment.exists()] == ["sglang_loads_"]
    assert len(list((server.folder / "tmp").iterdir())) == 5
    assert any(isinstance(event, log.PhaseSeen) and event.phase is Phase.DRAINING for event in server.events())
    assert sockets.holders(server.port) == ()


def test_sigterm_lets_a_stream_finish_and_takes_new_requests_meanwhile(server: Server) -> None:
    asked = {"ignore_eos": True, "max_tokens": server.build.stream_tokens, "stream": True}
    stream = _Background(lambda: server.post("/v1/completions", {"model": MODEL_NAME, "prompt": "hello", **asked}))
    assert until(lambda: _running(server) or None, CLOCK, 10, 0.05)
    server.process.send_signal(signal.SIGTERM)
    assert until(lambda: server.status("/ready") == 503 or None, CLOCK, 2, 0.02)
    assert server.get("/health").status == 503
    assert server.post("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 2}}).status == 200
    answer = stream.result(60)
    status, _seconds = server.wait_end(30)
    events = answer.body.decode().strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    parts = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-1]]
    assert len(parts) > server.build.stream_tokens / 2
    assert parts[-1]["finish_reason"] == "length"
    assert (status, server.members()) == (0, ())


def test_a_killed_scheduler_leaves_a_port_that_accepts_and_does_not_answer_until_the_server_kills_itself(
    server: Server,
) -> None:
    assert procs.signal(server.scheduler(), signal.SIGKILL)
    assert until(lambda: "SIGQUIT received." in server.said() or None, CLOCK, 5, 0.05)
    CLOCK.sleep(0.3)
    with socket.create_connection(("127.0.0.1", server.port), 1):
        assert server.get("/ready", timeout_s=1).status is None
    status, seconds = server.wait_end(20)
    assert (status, server.members()) == (-signal.SIGKILL, ())
    assert 2 < seconds < 8
    assert any(isinstance(event, log.TroubleSeen) for event in server.events())


def test_sigkill_of_the_main_process_takes_the_workers_with_it(server: Server) -> None:
    server.process.kill()
    assert server.wait_end(5)[0] == -signal.SIGKILL
    assert until(lambda: server.members() == () or None, CLOCK, 2, 0.02)
    assert sockets.holders(server.port) == ()


def test_a_server_that_is_ended_while_its_children_import_leaves_them_as_orphans(begin: Start, build: Build) -> None:
    server = begin(**dict(build.slow))
    try:
        assert until(lambda: _importing(server), CLOCK, build.start_limit_s, 0.02)
        # The last one has been started but may still wait for its orders; without them it would end at once.
        CLOCK.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_end(2)[0] == -signal.SIGTERM
        CLOCK.sleep(0.3)
        orphans = [one for one in server.members() if "spawn_main" in _words(one.pid)]
        assert len(orphans) == build.tp + 1
        assert server.pid not in {one.parent_pid for one in orphans}
        assert not any(title.startswith("sglang::") for title in server.titles())
    finally:
        # At once: an orphaned scheduler of the real engine sends SIGQUIT to whoever has adopted it.
        server.end()
    assert server.members() == ()


def test_an_unknown_option_ends_it_with_2_and_is_named(begin: Start) -> None:
    server = begin("--no-such-option")
    assert server.wait_end(server.build.start_limit_s)[0] == 2
    assert "unrecognized arguments: --no-such-option" in server.said()


def test_help_lists_the_options_and_choices_that_dsv4ctl_decides_by(build: Build) -> None:
    argv = [str(build.python), "-m", "sglang.launch_server", "--help"]
    done = subprocess.run(argv, env=dict(build.environment), capture_output=True, text=True, check=True, timeout=120)
    options, choices = parse_help(done.stdout)
    managed = "model-path served-model-name host port nccl-port tp-size context-length mem-fraction-static api-key"
    assert {f"--{name}" for name in managed.split()} <= options
    assert "--cuda-graph-max-bs-decode" in options
    assert "--cuda-graph-max-bs" not in options
    assert "fp8_e4m3" in choices["--kv-cache-dtype"]
    assert "deepseekv4" in choices["--tool-call-parser"]
    assert "deepseek-v4" in choices["--reasoning-parser"]


# ---- movements -------------------------------------------------------------------------------------------------------


class _Background:
    """A request in a thread."""

    def __init__(self, ask: Callable[[], probe.Answer]) -> None:
        self.answers: list[probe.Answer] = []
        self.thread = threading.Thread(target=lambda: self.answers.append(ask()), daemon=True)
        self.thread.start()

    def result(self, limit_s: float) -> probe.Answer:
        """Its answer."""
        self.thread.join(limit_s)
        assert self.answers, f"no answer within {limit_s} s"
        return self.answers[0]


def _json(answer: probe.Answer) -> Any:
    assert answer.status == 200, answer
    return json.loads(answer.body)


def _running(server: Server) -> bool:
    return bool(_json(server.get("/v1/loads"))["loads"][0]["num_running_reqs"])


def _words(pid: int) -> str:
    found = procs.read(pid)
    return found.command if found else ""


def _importing(server: Server) -> bool | None:
    """All workers are there and none has its title yet."""
    assert server.alive()
    return sum("spawn_main" in _words(one.pid) for one in server.members()) == server.build.tp + 1 or None


@pytest.fixture(autouse=True)
def _gone(build: Build) -> None:
    """Every test asks for the build, so that the whole module runs once per engine."""
