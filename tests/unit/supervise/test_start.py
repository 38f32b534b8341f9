"""From the gate to READY=1, with a real process, a real server and a notify socket of the test's own."""

import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl.engine import router, transfer
from dsv4ctl.model import Phase, SuperviseExit
from tests.unit.supervise.conftest import ENGINE, Bench, marked

BAR = "Loading safetensors checkpoint shards:   6% Completed | {}/46 [00:01<00:20,  2.0it/s]\r"
CAPACITY = (
    "[2026-11-29 12:00:00 TP0] max_total_num_tokens=6050000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=256, context_len=4096, available_gpu_mem=9.5 GB"
)


# ---- a good start --------------------------------------------------------------------------------------------------


def test_a_good_engine_gets_ready_and_says_what_it_serves(bench: Bench) -> None:
    bench.start(log=[CAPACITY]).wait_ready()
    line = f"ready: dsv4 on 127.0.0.1:{bench.instance.port}, context 4096, 6.05 M KV tokens"
    assert bench.statuses[-1] == line
    assert (bench.state.phase, bench.state.words) == (Phase.READY, line)
    assert bench.state.capacity is not None
    assert bench.state.capacity.max_total_tokens == 6050000


def test_the_phases_of_a_load_are_told_as_they_come(bench: Bench) -> None:
    log = ["Load weight begin. avail mem=90.0 GB", *([0.1, BAR.format(n)] for n in (1, 2, 31)), [0.4, CAPACITY]]
    bench.start(log=log).wait_ready()
    told = "\n".join(bench.statuses)
    assert [w for w in ("starting the engine", "loading weights 31/46", "ready:") if w not in told] == []
    assert told.index("checking ports") < told.index("starting") < told.index("loading weights") < told.index("ready:")


def test_ready_is_said_once_and_in_one_message_with_its_status(bench: Bench) -> None:
    bench.start().wait_ready()
    ready = [said for _, said in bench.messages if "READY" in said]
    assert len(ready) == 1
    assert ready[0]["STATUS"].startswith("ready: dsv4")


def test_an_engine_that_is_healthy_but_cannot_generate_yet_is_not_ready_yet(bench: Bench) -> None:
    began = time.monotonic()
    bench.start(generates_after_s=2.0).wait_ready()
    assert (bench.said("READY=1") or 0) - began >= 2.0
    assert any("proving it" in status for status in bench.statuses)


def test_a_warm_up_is_waited_for_by_the_stall_limit_and_not_by_the_proofs(bench: Bench) -> None:
    bench.limit(proof_s=1).start(warm_s=2.5).wait_ready()
    assert any("warming up" in status for status in bench.statuses)


def test_a_build_without_ready_is_proved_by_its_log_line_and_health(bench: Bench) -> None:
    bench.start(has_ready=False).wait_ready()


@pytest.mark.alone
def test_ready_follows_within_a_tenth_of_a_second_when_the_engine_can_serve(bench: Bench) -> None:
    bench.start(warm_s=1.0).wait_ready()
    bound = next(at for at, said in bench.messages if "warming up" in said.get("STATUS", ""))
    # The engine counts its second from the bind, which was before we saw it.
    assert (bench.said("READY=1") or 0) - bound < 1.0 + 0.25


def test_proxy_variables_are_not_looked_at(bench: Bench) -> None:
    proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    bench.environment |= dict.fromkeys(proxies, "http://127.0.0.1:9/")
    bench.start().wait_ready()


def test_our_own_tools_are_found_whatever_path_the_engine_is_given(bench: Bench) -> None:
    bench.environment["PATH"] = "/nowhere"
    bench.start().wait_ready()
    engine = bench.state.engine_pid
    assert b"PATH=/nowhere" in Path(f"/proc/{engine}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost"])  # noqa: S104 -- the engine under test binds it
def test_an_engine_is_asked_on_loopback_whatever_it_binds(bench: Bench, host: str) -> None:
    bench.instance = replace(bench.instance, host=host)
    bench.start().wait_ready()


def test_the_time_left_is_told_once_a_start_has_succeeded(bench: Bench) -> None:
    log = ["Load weight begin. avail mem=90.0 GB", [2.0, CAPACITY]]
    bench.start(log=log).wait_ready()
    assert not any("left" in status for status in bench.statuses)
    assert bench.stop() == 0
    bench.messages.clear()
    bench.start(log=log).wait_status("loading weights, about 2 s left")


# ---- the engine's surroundings ---------------------------------------------------------------------------------------

TELLS = """
import os, signal, sys
names = ("NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "SYSTEMD_EXEC_PID")
print("has:", [n for n in names if n in os.environ], "keeps:", os.environ.get("SGLANG_X"), flush=True)
status = open("/proc/self/status").read()
masks = [int(l.split()[1], 16) for l in status.splitlines() if l.startswith(("SigBlk", "SigIgn"))]
named = sum(1 << number - 1 for number in signal.Signals)
print("masks:", [mask & named for mask in masks], flush=True)
print("session:", os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), sys.stdin.read() == "", flush=True)
"""


def test_the_engine_gets_its_environment_without_what_is_addressed_to_us(bench: Bench) -> None:
    bench.environment |= {"SGLANG_X": "1", "CREDENTIALS_DIRECTORY": "/nowhere", "SYSTEMD_EXEC_PID": "1"}
    bench.start_engine(sys.executable, "-c", TELLS)
    assert bench.end() == SuperviseExit.DIED_LOADING
    assert "has: [] keeps: 1" in bench.journal


def test_the_engine_starts_with_default_signals_in_a_session_of_its_own(bench: Bench) -> None:
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        bench.start_engine(sys.executable, "-c", TELLS)
        assert bench.end() == SuperviseExit.DIED_LOADING
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    by_python_itself = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert f"masks: [0, {by_python_itself}]" in bench.journal
    assert "session: True True True" in bench.journal


# ---- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "listening"),
    [("127.0.0.1", True), ("127.0.0.1", False), ("0.0.0.0", True), ("0.0.0.0", False), ("::1", True), ("::", True)],  # noqa: S104
)
def test_a_port_that_is_held_closes_the_gate_and_names_the_holder(
    bench: Bench,
    host: str,
    listening: bool,  # noqa: FBT001
) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        holder.bind((host, bench.instance.port))
        if listening:
            holder.listen()
        bench.start()
        assert bench.end() == SuperviseExit.PORT
    assert f"http port {bench.instance.port} is taken" in bench.state.words
    assert f"pid {os.getpid()}" in bench.state.words
    assert "args:" not in bench.journal
    assert (bench.state.phase, bench.state.exit) == (Phase.FAILED, 3)


def test_a_taken_rendezvous_port_closes_the_gate_on_any_address(bench: Bench) -> None:
    with socket.create_server(("127.0.0.2", bench.instance.rendezvous_port)):
        bench.start()
        assert bench.end() == SuperviseExit.PORT
    assert f"rendezvous port {bench.instance.rendezvous_port} is taken" in bench.state.words


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("/nowhere/python", "x"), "/nowhere/python is not an executable file"),
        (("python3", "x"), "python3 is not an executable file"),
        (("/etc/passwd", "x"), "/etc/passwd is not an executable file"),
        ((sys.executable, "-m", "no_such_engine.launch_server"), "has no package no_such_engine"),
        ((sys.executable, "-c", router.WITH_KEY, "/key"), "has no package sglang_router"),
        ((sys.executable, "-m", "json.tool", transfer.OPTION, "nixl"), "has no package nixl"),
        ((sys.executable, "-m", "json.tool", transfer.OPTION, "mooncake_tcp"), "has no package mooncake"),
        (("/bin/false", "-m", "sglang.launch_server"), "/bin/false"),
    ],
)
def test_an_engine_that_cannot_run_closes_the_gate(bench: Bench, argv: tuple[str, ...], why: str) -> None:
    bench.start_engine(*argv)
    assert bench.end() == SuperviseExit.MISSING
    assert why in bench.state.words
    assert bench.state.advice


def test_a_program_that_is_no_program_is_told_as_such(bench: Bench) -> None:
    script = bench.folder / "engine"
    script.write_text("no interpreter line\n")
    script.chmod(0o755)
    bench.start_engine(str(script), "x")
    assert bench.end() == SuperviseExit.MISSING
    assert f"cannot start {script}: exec format error" in bench.state.words


def test_a_model_that_is_not_there_closes_the_gate(bench: Bench) -> None:
    bench.instance = replace(bench.instance, model=str(bench.folder / "model"))
    bench.start()
    assert bench.end() == SuperviseExit.MISSING
    assert f"the model {bench.folder}/model is not there" in bench.state.words


# ---- the key ---------------------------------------------------------------------------------------------------------

KEY = "top-secret-\"key'\\1"


def with_key(bench: Bench, key: str = KEY) -> Bench:
    credentials = bench.folder / "credentials"
    credentials.mkdir()
    (credentials / "api-key").write_text(key + "\n")
    bench.environment["CREDENTIALS_DIRECTORY"] = str(credentials)
    secrets = str(bench.folder / "run" / "secrets.yaml")
    bench.instance = replace(bench.instance, api_key_file="/etc/key", secrets_file=secrets)
    return bench


def everything_told(bench: Bench) -> str:
    return bench.journal + json.dumps(bench.messages) + (bench.folder / "run" / "state.json").read_text()


def test_the_key_is_sent_with_every_probe_and_never_told(bench: Bench) -> None:
    with_key(bench).start(key=KEY, log=[f"server_args=ServerArgs(api_key={KEY!r})"]).wait_ready()
    secrets = bench.folder / "run" / "secrets.yaml"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert secrets.read_text().startswith("api-key: ")
    bench.stop()
    told = everything_told(bench)
    assert "args:" in told
    assert "api_key='[api key]'" in told or 'api_key="[api key]"' in told
    assert "top-secret" not in told


def test_a_refused_key_is_told_as_a_key_problem(bench: Bench) -> None:
    with_key(bench, "another").start(key=KEY)
    assert bench.end() == SuperviseExit.PROOF
    assert "key problem: the engine refuses the key" in bench.state.words
    assert marked(bench.folder) == []


def test_an_engine_that_asks_for_a_key_when_none_is_configured_is_a_key_problem_too(bench: Bench) -> None:
    bench.start(key=KEY)
    assert bench.end() == SuperviseExit.PROOF
    assert "none is configured" in bench.state.words


@pytest.mark.parametrize("content", [None, "", "\n", "two\nlines"])
def test_a_key_that_cannot_be_used_closes_the_gate(bench: Bench, content: str | None) -> None:
    with_key(bench, content or "")
    if content is None:
        (bench.folder / "credentials" / "api-key").unlink()
    bench.start()
    assert bench.end() == SuperviseExit.MISSING
    assert "key" in bench.state.words
    assert "args:" not in bench.journal


# ---- a start that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ({"model": "other"}, "the engine serves other, not dsv4"),
        ({"generation": 400}, "the engine refuses to generate: /v1/completions says 400"),
    ],
)
def test_an_engine_that_is_not_what_was_asked_for_fails_its_proof(
    bench: Bench, behaviour: dict[str, object], why: str
) -> None:
    bench.start(**behaviour)
    assert bench.end() == SuperviseExit.PROOF
    assert why in bench.state.words
    assert bench.said("READY=1") is None
    assert marked(bench.folder) == []


def test_another_context_length_fails_the_proof(bench: Bench) -> None:
    bench.instance = replace(bench.instance, context_length=8192)
    bench.start(context=4096)
    assert bench.end() == SuperviseExit.PROOF
    assert "context length 4096, not 8192" in bench.state.words


@pytest.mark.parametrize("generation", [503, 0])
def test_a_proof_that_never_comes_ends_at_its_limit(bench: Bench, generation: int) -> None:
    began = time.monotonic()
    bench.limit(proof_s=2).start(generation=generation)
    assert bench.end() == SuperviseExit.PROOF
    assert "not proved within 2 s" in bench.state.words
    assert time.monotonic() - began < 15


def test_an_engine_that_stalls_is_ended_with_the_phase_and_the_count(bench: Bench) -> None:
    log = ["Load weight begin. avail mem=90.0 GB", BAR.format(2), [0.5, "\r" + BAR.format(3).rstrip("\r")]]
    bench.limit(stall_s=2).start(log=[*log[:2], log[2]], hang=True)
    assert bench.end() == SuperviseExit.STALLED
    assert bench.state.words == "stalled in weights 3/46 for 2 s"
    assert marked(bench.folder) == []


def test_systemd_is_asked_for_more_time_than_our_own_verdict_needs(bench: Bench) -> None:
    log = [[0.3, BAR.format(n)] for n in range(1, 6)]
    bench.limit(stall_s=900).start(log=log).wait_ready()
    asked = [(at, int(said["EXTEND_TIMEOUT_USEC"])) for at, said in bench.messages if "EXTEND_TIMEOUT_USEC" in said]
    assert len(asked) >= 2
    assert all(900_000_000 < us <= 1_100_000_000 for _, us in asked)
    assert all(b - a > 0.9 for (a, _), (b, _) in itertools.pairwise(asked))


def test_a_stalled_engine_is_not_given_more_time(bench: Bench) -> None:
    bench.limit(stall_s=2).start(log=["Load weight begin. avail mem=90.0 GB", *([[0.2, BAR.format(3)]] * 30)])
    assert bench.end() == SuperviseExit.STALLED
    stalls_at = bench.messages[-1][0]
    ends = [at + int(said["EXTEND_TIMEOUT_USEC"]) / 1e6 for at, said in bench.messages if "EXTEND_TIMEOUT_USEC" in said]
    assert max(ends) > stalls_at
    assert bench.state.words.startswith("stalled in weights")


def test_refused_arguments_are_a_usage_error_in_the_engines_own_words(bench: Bench) -> None:
    line = "launch_server.py: error: unrecognized arguments: --cuda-graph-max-bsx 4"
    bench.start(log=["usage: launch_server.py [-h]", line], exit=2)
    assert bench.end() == SuperviseExit.USAGE
    assert bench.state.words == f"the engine refuses its arguments: {line}"


def test_a_bind_that_fails_at_the_end_of_the_load_names_the_holder(bench: Bench) -> None:
    bench.start(log=[[0.5, "loaded"]], exit=3)
    bench.wait_status("starting")
    with socket.socket() as holder:
        time.sleep(0.2)
        holder.bind(("127.0.0.1", bench.instance.port))  # bound and not listening: no look at listeners sees it
        assert bench.end() == SuperviseExit.PORT
    assert f"could not bind port {bench.instance.port}: pid {os.getpid()}" in bench.state.words


def test_a_port_that_the_engines_own_worker_took_is_a_self_collision(bench: Bench) -> None:
    takes = (
        "import json, os, socket, subprocess, sys, time\n"
        "port = int(sys.argv[1])\n"
        "if os.fork() == 0:\n"
        "    s = socket.create_server(('127.0.0.1', port)); time.sleep(600)\n"
        "time.sleep(1.5); sys.exit(3)\n"
    )
    bench.start_engine(sys.executable, "-c", takes, str(bench.instance.port))
    bench.wait_status("not by the engine's main process")
    assert bench.end() == SuperviseExit.PORT
    assert "its own pid" in bench.state.words
    assert marked(bench.folder) == []


def test_a_death_in_the_load_is_told_with_its_cause(bench: Bench) -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    bench.start(log=["Load weight begin. avail mem=90.0 GB", oom], exit=1)
    assert bench.end() == SuperviseExit.DIED_LOADING
    assert "the engine ended with exit status 1 in weights: " in bench.state.words
    assert "memory" in bench.state.words.split("in weights: ")[1]
    assert bench.state.advice


def test_a_death_nobody_knows_the_cause_of_is_told_with_the_last_line(bench: Bench) -> None:
    bench.start(log=["\x1b[33msomething nobody\x1b[0m has seen before"], kill=9)
    assert bench.end() == SuperviseExit.DIED_LOADING
    words = "the engine was killed by SIGKILL in starting: its last line was: something nobody has seen before"
    assert bench.state.words == words


def test_what_a_dead_engine_leaves_behind_is_ended(bench: Bench) -> None:
    bench.start(orphan="plain", log=[[0.3, "x"]], exit=1)
    assert bench.end() == SuperviseExit.DIED_LOADING
    assert marked(bench.folder) == []


# ---- the impostor ----------------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])  # noqa: S104
def test_an_impostor_ends_the_start_within_two_seconds_and_is_named(bench: Bench, host: str) -> None:
    other = Bench(folder=bench.folder, instance=bench.instance, environment=bench.environment)
    bench.start(log=[[20, "loading"]])
    bench.wait_for(lambda: "args:" in bench.journal)
    code = (
        "import socket, sys, time; s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)\n"
        "s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(); print(flush=True); time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", code, host, str(other.instance.port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}) as impostor:
        assert impostor.stdout is not None
        impostor.stdout.readline()
        appeared = time.monotonic()
        try:
            assert bench.end() == SuperviseExit.PORT
            assert time.monotonic() - appeared < 2
            assert f"pid {impostor.pid}" in bench.state.words
            assert "while the engine loads" in bench.state.words
            assert impostor.poll() is None
        finally:
            impostor.kill()
    assert marked(bench.folder) == []


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv", [(), ("x",), ("x", "--"), ("/nowhere.json", "--", "/bin/true"), ("/etc/passwd", "--", "a")]
)
def test_a_command_that_cannot_be_understood_is_a_usage_error_without_a_traceback(argv: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dsv4ctl.supervise", *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == SuperviseExit.USAGE
    assert done.stderr.startswith("dsv4ctl: ")
    assert "Traceback" not in done.stderr


def test_by_hand_the_statuses_are_shown_on_the_terminal(bench: Bench) -> None:
    del bench.environment["NOTIFY_SOCKET"]
    bench.start()
    bench.wait_for(lambda: "dsv4ctl: ready: dsv4 on" in bench.journal)
    assert bench.stop() == 0


def test_a_notify_socket_that_is_gone_is_told_and_ends_nothing(bench: Bench) -> None:
    bench.start(log=[[0.5, "x"]])
    bench.wait_for(lambda: "args:" in bench.journal)
    Path(bench.environment["NOTIFY_SOCKET"]).unlink()
    assert ENGINE.exists()
    bench.wait_for(lambda: bench.state.phase is Phase.READY)
    assert bench.stop() == 0
