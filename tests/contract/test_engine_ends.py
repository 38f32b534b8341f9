"""How an engine ends, asked of the stand-in and of the real SGLang alike; most of these cost a server."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable

from dsv4ctl import pidfd, procs, sockets
from dsv4ctl.clock import until
from dsv4ctl.engine import log
from dsv4ctl.engine.options import parse_help
from dsv4ctl.model import Phase
from tests.contract.engines import CLOCK, MODEL_NAME, PATIENCE_S, Background, Build, Server, reply

Start = Callable[..., Server]


def test_sigterm_to_an_idle_server_ends_it_with_0_and_leaves_files_but_no_process(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    draining = until(lambda: server.status("/ready") == 503 or None, CLOCK, PATIENCE_S, 0.02)
    status, _seconds = server.wait_end()
    assert draining
    assert (status, server.members()) == (0, ())
    # It has not come to the 15 s after which it would have killed them.
    assert "Schedulers still alive" not in server.said()
    assert [segment.name[:13] for segment in server.segments if segment.exists()] == ["sglang_loads_"]
    assert len(list((server.folder / "tmp").iterdir())) == 5
    assert any(isinstance(event, log.PhaseSeen) and event.phase is Phase.DRAINING for event in server.events())
    assert sockets.holders(server.port) == ()


def test_sigterm_lets_a_stream_finish_and_takes_new_requests_meanwhile(server: Server) -> None:
    asked = {"ignore_eos": True, "max_tokens": server.build.stream_tokens, "stream": True}
    stream = Background(lambda: server.post("/v1/completions", {"model": MODEL_NAME, "prompt": "hello", **asked}))
    assert until(lambda: _running(server) or None, CLOCK, PATIENCE_S, 0.05)
    server.process.send_signal(signal.SIGTERM)
    assert until(lambda: server.status("/ready") == 503 or None, CLOCK, PATIENCE_S, 0.02)
    assert server.get("/health").status == 503
    assert server.post("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 2}}).status == 200
    answer = stream.result(PATIENCE_S)
    status, _seconds = server.wait_end()
    events = answer.body.decode().strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    parts = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-1]]
    assert len(parts) > server.build.stream_tokens / 2
    assert parts[-1]["finish_reason"] == "length"
    assert (status, server.members()) == (0, ())


def test_a_killed_scheduler_leaves_a_port_that_accepts_and_does_not_answer_until_the_server_kills_itself(
    server: Server,
) -> None:
    assert pidfd.signal(server.scheduler(), signal.SIGKILL)
    assert until(lambda: "SIGQUIT received." in server.said() or None, CLOCK, PATIENCE_S, 0.05)
    CLOCK.sleep(0.3)
    with socket.create_connection(("127.0.0.1", server.port), 1):
        assert server.get("/ready", timeout_s=1).status is None
    status, seconds = server.wait_end()
    assert (status, server.members()) == (-signal.SIGKILL, ())
    # 5 s, and not the minute for which it would wait for a CUDA coredump of a scheduler that is alive.
    assert 2 < seconds < 60
    assert any(isinstance(event, log.TroubleSeen) for event in server.events())


def test_sigkill_of_the_main_process_takes_the_workers_with_it(server: Server) -> None:
    server.process.kill()
    assert server.wait_end()[0] == -signal.SIGKILL
    assert until(lambda: server.members() == () or None, CLOCK, PATIENCE_S, 0.02)
    assert sockets.holders(server.port) == ()


def test_a_server_that_is_ended_while_its_children_import_leaves_them_as_orphans(begin: Start, build: Build) -> None:
    server = begin(**dict(build.slow))
    try:
        assert until(lambda: _importing(server), CLOCK, build.start_limit_s, 0.02)
        # The last one has been started but may still wait for its orders; without them it would end at once.
        CLOCK.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_end()[0] == -signal.SIGTERM
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


def _running(server: Server) -> bool:
    return bool(reply(server.get("/v1/loads"))["loads"][0]["num_running_reqs"])


def _words(pid: int) -> str:
    found = procs.read(pid)
    return found.command if found else ""


def _importing(server: Server) -> bool | None:
    """All workers are there and none has its title yet."""
    assert server.alive()
    return sum("spawn_main" in _words(one.pid) for one in server.members()) == server.build.tp + 1 or None
