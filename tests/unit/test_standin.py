"""The stand-in engine does what its behaviour file says; that it resembles the real one is tested in tests/contract."""

import importlib.util
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import procs, sockets
from dsv4ctl.clock import until
from dsv4ctl.engine import log
from dsv4ctl.rehearsal import environment
from dsv4ctl.rehearsal.standin.sglang.standin import behaviour, figures, options
from tests.contract.engines import CLOCK, KEY, MODEL_NAME, Build, Server, free_ports, start

Begin = Callable[..., Server]

QUICK = {"import_s": 0.0, "load_s": 0.1, "warmup_s": 0.05, "drain_poll_s": 0.05, "crash_settle_s": 0.1, "token_s": 0.0}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The stand-in engine with two ranks on two GPUs of a ledger."""
    folder = tmp_path_factory.mktemp("standin")
    return Build(
        name="stand-in",
        python=environment.install(folder / "venv", base_python=sys.executable),
        model=environment.make_model(folder / "model"),
        tp=2,
        flags=(),
        environment=(("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"),),
        stream_tokens=100,
        start_limit_s=20,
    )


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Ports of this module."""
    return free_ports()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where the stand-in says what it holds of its GPUs."""
    (tmp_path / "gpus").mkdir()
    return tmp_path / "gpus"


@pytest.fixture
def begin(ledger: Path, build: Build, ports: Iterator[tuple[int, int]], tmp_path: Path) -> Iterator[Begin]:
    """Start the stand-in with a behaviour; it is ended after the test."""
    servers: list[Server] = []
    played = (("DSV4CTL_STANDIN_GPUS", str(ledger)),)

    def one(*words: str, engine: Build = build, at: tuple[int, int] | None = None, **keys: Any) -> Server:
        engine = replace(engine, environment=played + engine.environment)
        servers.append(start(engine, tmp_path / f"engine{len(servers)}", at or next(ports), *words, **QUICK | keys))
        return servers[-1]

    yield one
    for server in servers:
        server.end()


@pytest.fixture
def ready(begin: Begin) -> Begin:
    """Start the stand-in and wait for its ready line."""

    def one(*words: str, **keys: Any) -> Server:
        server = begin(*words, **keys)
        assert until(lambda: "fired up" in server.said() or None, CLOCK, 20, 0.02), server.said()
        server.note_segments()
        return server

    return one


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
        ({"die_in": "pools"}, 1, "Rank 0 scheduler died during initialization (exit code: -9)"),
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


def test_each_rank_holds_its_gpu_while_it_serves(ready: Begin, ledger: Path) -> None:
    server = ready()
    held = {file.parent.name: int(file.read_text()) for file in ledger.glob("*/[0-9]*")}
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_end(10)[0] == 0
    assert held.keys() == {"GPU-a", "GPU-b"}
    assert all(75 * 2**30 < size < 90 * 2**30 for size in held.values())
    assert not list(ledger.glob("*/[0-9]*"))


def test_fewer_gpus_than_ranks_are_refused(begin: Begin, build: Build) -> None:
    server = begin(engine=replace(build, environment=(("CUDA_VISIBLE_DEVICES", "GPU-a"),)))
    assert server.wait_end(20)[0] == -9
    assert "CUDA error: invalid device ordinal" in server.said()


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (("--mem-fraction-static", "0.8"), "Raise --mem-fraction-static above 0.811"),
        (("--tp-size", "1"), "torch.OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_what_does_not_fit_into_a_gpu_ends_the_load(begin: Begin, words: tuple[str, ...], trouble: str) -> None:
    server = begin(*words)
    assert server.wait_end(20)[0] == -9
    assert trouble in server.said()


def test_health_is_green_and_generation_hangs(ready: Begin) -> None:
    server = ready(health_but_no_generation=True)
    assert (server.status("/ready"), server.status("/health")) == (200, 200)
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


def test_an_old_spelling_is_ambiguous_and_ends_with_2(begin: Begin) -> None:
    server = begin("--cuda-graph-max-bs", "8")
    assert server.wait_end(10)[0] == 2
    assert "ambiguous option: --cuda-graph-max-bs could match" in server.said()


def test_a_model_that_is_not_there_ends_it_with_1(begin: Begin, build: Build, tmp_path: Path) -> None:
    server = begin(engine=replace(build, model=tmp_path / "no-model"))
    assert server.wait_end(10)[0] == 1
    assert "Can't load the configuration of" in server.said()


def test_the_environment_tells_its_version_and_serves_by_both_names(build: Build) -> None:
    ask = "import importlib.metadata as m, sglang; print(m.version('sglang'), sglang.__version__)"
    assert _run(str(build.python), "-c", ask) == "0.5.23 0.5.23\n"
    assert _run(str(build.python.with_name("sglang")), "version") == "sglang version: 0.5.23\n"


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout


def test_installing_twice_is_quick_and_the_checkout_is_not_needed(build: Build) -> None:
    folder = build.python.parent.parent
    before = CLOCK.now()
    assert environment.install(folder, base_python=str(build.python)) == build.python
    assert CLOCK.now() - before < 0.5
    assert _run(str(build.python), "-P", "-c", "import sglang; print(sglang.__file__)").startswith(str(folder))


def test_every_key_of_a_behaviour_is_explained() -> None:
    text = behaviour.__doc__ or ""
    missing = [field.name for field in fields(behaviour.Behaviour) if f"\n  {field.name} " not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([], "a JSON object is expected"),
        ({"stall_in": "lunch"}, "stall_in must be one of import, dist, weights, pools, kernels, graphs, warmup"),
        ({"exit": 4}, "exit must be one of 1, 2, 3"),
        ({"ignore_sigterm": 1}, "ignore_sigterm must be bool"),
        ({"lose_port": True}, "lose_port must be float or null"),
        ({"chatty_lines": 1.5}, "chatty_lines must be int"),
    ],
)
def test_a_behaviour_that_cannot_be_meant_is_refused(keys: object, problem: str) -> None:
    with pytest.raises(behaviour.BadBehaviour, match=problem):
        behaviour.parse(keys)


def test_token_counts_are_read_as_by_the_real_engine() -> None:
    assert [options.human(word) for word in ("512", "128k", "128Ki", "1.5M")] == [512, 128_000, 131_072, 1_500_000]


def test_the_tokens_of_a_played_gpu_are_those_of_the_real_pool_configurator() -> None:
    # 20 GiB of budget, 256 requests: worked out with SGLang 0.5.23's own classes.
    assert figures.COMPRESSED_BYTES == 3899.25
    assert round(figures.COMPRESSED_BYTES + 0.1 * figures.WINDOW_BYTES, 2) == 7086.75


def test_the_standin_needs_nothing_but_the_standard_library() -> None:
    folder = Path(environment.__file__).with_name("standin") / "sglang"
    words = {line.split()[1].split(".")[0] for file in folder.rglob("*.py") for line in _imports(file)}
    known = sys.stdlib_module_names | {""}
    assert words <= known, words - known
    assert importlib.util.find_spec("sglang") is None


def _imports(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith(("import ", "from ")):
            yield line.strip()


def _complete(server: Server, *, timeout_s: float) -> Any:
    asked = {"model": MODEL_NAME, "prompt": "hello", "max_tokens": 4}
    return server.post("/v1/completions", asked, timeout_s=timeout_s)
