"""The stand-in engine serves as its behaviour file says; that it resembles the real one is tested in tests/contract."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4ctl import procs, sockets
from dsv4ctl.clock import until
from dsv4ctl.engine import log
from dsv4ctl.probe import Answer
from tests.contract.engines import CLOCK, KEY, MODEL_NAME, Server

Begin = Callable[..., Server]


def test_each_rank_holds_its_gpu_while_it_serves(ready: Begin, ledger: Path) -> None:
    server = ready()
    held = {file.parent.name: int(file.read_text()) for file in ledger.glob("*/[0-9]*")}
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_end(10)[0] == 0
    assert held.keys() == {"GPU-a", "GPU-b"}
    assert all(75 * 2**30 < size < 90 * 2**30 for size in held.values())
    assert not list(ledger.glob("*/[0-9]*"))


def test_health_is_green_and_generation_hangs(ready: Begin) -> None:
    server = ready(health_but_no_generation=True)
    assert (server.status("/ready"), server.status("/health")) == (200, 200)
    assert server.get("/health_generate", timeout_s=1.5).status is None
    assert _complete(server, timeout_s=1).status is None


def test_generation_works_after_a_while(ready: Begin) -> None:
    server = ready(generation_works_after_s=2.0)
    answer = _complete(server, timeout_s=10)
    assert answer.status == 200
    assert CLOCK.now() - server.started >= 2.0


@pytest.mark.parametrize(
    ("kind", "body"),
    [("empty", '"text": ""'), ("no_choices", '{"object": "list", "data": []}'), ("not_json", "<html>")],
)
def test_a_generation_is_garbage(ready: Begin, kind: str, body: str) -> None:
    answer = _complete(ready(garbage_generation=kind), timeout_s=5)
    assert answer.status == 200
    assert body in answer.body.decode()


def test_small_lies(ready: Begin) -> None:
    server = ready(wrong_model_name="somebody-else", status_401=True, without_ready=True)
    assert server.status("/v1/models") == 401
    assert server.status("/health") == 200
    server = ready(wrong_model_name="somebody-else", without_ready=True)
    assert server.status("/ready") == 404
    assert json.loads(server.get("/v1/models").body)["data"][0]["id"] == "somebody-else"


def test_the_port_is_lost_while_it_serves(ready: Begin) -> None:
    server = ready(lose_port=0.2)
    assert until(lambda: server.status("/ready") is None or None, CLOCK, 3, 0.05)
    assert server.alive()
    assert sockets.blocked("127.0.0.1", server.port) == ""


def test_lines_steps_and_late_binds_come_as_asked(ready: Begin) -> None:
    server = ready(chatty_lines=1234, weights_steps=7, graphs_steps=5, bind_late_s=0.5)
    assert server.said().count("chatty line") == 1234
    assert {(bar.phase.value, bar.total) for bar in server.events() if isinstance(bar, log.Progress)} == {
        ("weights", 7),
        ("graphs", 5),
    }


def test_it_dumps_what_reached_it(ready: Begin, tmp_path: Path) -> None:
    hard = '"q" \\ $HOME %u %% é'
    server = ready("--extra-metric-labels", json.dumps({"a": hard}), dump_to=str(tmp_path / "dump.json"))
    dump = json.loads((tmp_path / "dump.json").read_text(encoding="utf-8"))
    assert dump["argv"][-2:] == ["--extra-metric-labels", json.dumps({"a": hard})]
    assert dump["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert dump["cwd"] == str(Path.cwd())
    assert dump["limits"]["RLIMIT_NOFILE"][1] > 0
    assert server.alive()


def test_a_heap_is_resident(ready: Begin) -> None:
    server = ready(heap_mb=200)
    status = (procs.PROC / str(server.pid) / "status").read_text(encoding="utf-8")
    (resident,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
    assert resident > 200 * 1024


def test_the_config_file_is_read_as_by_the_real_engine(begin: Begin, ready: Begin, tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(f"api-key: {json.dumps(KEY)}\n", encoding="utf-8")
    # One word instead of two: silently ignored, so nobody needs a key.
    assert ready(f"--config={file}").status("/v1/models") == 200
    file.write_text("api_key: abc\n", encoding="utf-8")
    refused = begin("--config", str(file))
    assert refused.wait_end(10)[0] == 2
    assert "unrecognized arguments: --api_key abc" in refused.said()


def _complete(server: Server, *, timeout_s: float) -> Answer:
    asked = {"model": MODEL_NAME, "prompt": "hello", "max_tokens": 4}
    return server.post("/v1/completions", asked, timeout_s=timeout_s)
