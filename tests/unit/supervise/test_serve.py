"""After READY=1: what ends a serving engine, what does not, and what the supervisor costs."""

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import procs
from dsv4ctl.model import Phase, Role, SuperviseExit
from tests.unit.supervise.conftest import Bench, marked


def engine_pid(bench: Bench) -> int:
    return bench.state.engine_pid


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (9, "the engine was killed by SIGKILL while it served"),
        (6, "the engine was killed by SIGABRT while it served"),
        (-1, "the engine ended with exit status 1 while it served"),
        (-3, "the engine ended with exit status 3 while it served"),
        (0, "the engine ended with exit status 0 while it served"),
    ],
)
def test_the_death_of_a_serving_engine_is_told_and_its_rest_is_ended(bench: Bench, death: int, words: str) -> None:
    bench.start(dies_after_s=0.8, death=death, orphan="plain").wait_ready()
    assert bench.end() == SuperviseExit.DIED_SERVING
    assert bench.state.words.startswith(words)
    assert (bench.state.phase, bench.state.exit) == (Phase.FAILED, SuperviseExit.DIED_SERVING)
    assert marked(bench.folder) == []


def test_an_engine_that_fails_its_probes_for_the_limit_is_ended(bench: Bench) -> None:
    sick = bench.folder / "sick"
    bench.limit(watch_s=1, unhealthy_s=2).start(health_file=str(sick)).wait_ready()
    sick.touch()
    bench.wait_status("failing since")
    assert bench.end() == SuperviseExit.UNHEALTHY
    assert bench.state.words.startswith("unhealthy since ")
    assert "for 2 s: /health_generate says 503" in bench.state.words
    assert bench.said("STOPPING=1")
    assert marked(bench.folder) == []


def test_an_engine_that_generates_nothing_while_its_health_is_green_is_ended_and_the_probe_is_named(
    bench: Bench,
) -> None:
    """B71: /health looks at a flag only where it is told to, and the scheduler behind it hangs."""
    hung = bench.folder / "hung"
    bench.limit(watch_s=1, unhealthy_s=2).start(hung_file=str(hung)).wait_ready()
    hung.touch()
    assert bench.end() == SuperviseExit.UNHEALTHY
    assert "for 2 s: /health_generate says 503" in bench.state.words


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_half_of_a_pair_is_sent_no_generation_of_the_watch_s_own(bench: Bench, role: Role) -> None:
    """B71: it is asked for /health, which generates over no peer unless its environment has it do nothing."""
    hung, asked = bench.folder / "hung", bench.folder / "asked"
    hung.touch()
    bench.instance = replace(bench.instance, role=role, bootstrap_port=bench.instance.port)
    bench.limit(watch_s=1, unhealthy_s=2).start(hung_file=str(hung), route=200, asked_file=str(asked))
    bench.wait_ready()
    bench.wait_for(lambda: asked.exists() and asked.read_text().count("/health\n") >= 2)
    assert "/health_generate" not in asked.read_text()
    assert bench.stop() == 0


def test_an_engine_of_a_build_without_that_question_is_asked_for_its_health(bench: Bench) -> None:
    asked = bench.folder / "asked"
    bench.limit(watch_s=1, unhealthy_s=2).start(has_health_generate=False, asked_file=str(asked)).wait_ready()
    bench.wait_for(lambda: asked.exists() and asked.read_text().count("/health\n") >= 2)
    assert bench.statuses[-1].startswith("ready: ")
    assert bench.stop() == 0


def test_an_engine_that_recovers_in_time_is_left_alone(bench: Bench) -> None:
    sick = bench.folder / "sick"
    bench.limit(watch_s=1, unhealthy_s=5).start(health_file=str(sick)).wait_ready()
    sick.touch()
    bench.wait_status("failing since")
    sick.unlink()
    bench.wait_for(lambda: bench.statuses[-1].startswith("ready: "))
    assert "well again after" in bench.journal
    assert bench.stop() == 0


def test_a_hung_engine_is_noticed_by_its_silence(bench: Bench) -> None:
    bench.limit(watch_s=1, unhealthy_s=1).start().wait_ready()
    os.kill(engine_pid(bench), signal.SIGSTOP)
    assert bench.end() == SuperviseExit.UNHEALTHY
    assert "/health_generate does not answer: no whole answer within 3 s" in bench.state.words
    assert marked(bench.folder) == []


def test_a_lost_port_is_noticed_and_named(bench: Bench) -> None:
    gone = bench.folder / "gone"
    bench.limit(watch_s=1, unhealthy_s=2).start(unbind_file=str(gone)).wait_ready()
    gone.touch()
    assert bench.end() == SuperviseExit.UNHEALTHY
    assert f"the port is lost: nobody listens on 127.0.0.1:{bench.instance.port}" in bench.state.words
    assert marked(bench.folder) == []


def test_somebody_who_listens_beside_a_serving_engine_is_named_and_costs_nobody_the_engine(bench: Bench) -> None:
    bench.limit(watch_s=1, unhealthy_s=1).start().wait_ready()
    with socket.create_server(("::1", bench.instance.port), family=socket.AF_INET6):
        bench.wait_status(f"beware: pid {os.getpid()}")
        time.sleep(2.5)
    bench.wait_for(lambda: "beware" not in bench.statuses[-1])
    assert bench.statuses[-1].startswith("ready: ")
    assert bench.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_other_signals_change_nothing_and_say_so(bench: Bench, number: signal.Signals) -> None:
    bench.start(log=[[0.5, "x"]])
    bench.wait_for(lambda: "args:" in bench.journal)
    bench.signal(number)
    bench.wait_for(lambda: f"{number.name} changes nothing here" in bench.journal)
    bench.wait_ready()
    bench.signal(number)
    bench.wait_for(lambda: bench.journal.count(f"{number.name} changes nothing here") == 2)
    assert bench.stop() == 0


def test_an_engine_that_somebody_else_told_to_stop_finishes_its_requests(bench: Bench) -> None:
    bench.limit(drain_s=3).start(requests=2).wait_ready()
    os.kill(engine_pid(bench), signal.SIGTERM)
    bench.wait_status("draining, 2 requests left")
    assert bench.end() == SuperviseExit.DIED_SERVING
    assert "somebody else told the engine to stop" in bench.state.words
    assert "aborted all requests" in bench.journal
    assert marked(bench.folder) == []


def test_a_flood_of_log_lines_neither_stalls_the_engine_nor_loses_one(bench: Bench) -> None:
    flood = (
        "import sys, time; began = time.monotonic()\n"
        "for n in range(200_000):\n"
        "    print(f'[2026-11-29 12:00:00 TP0] line {n} of a burst that nobody could read, {\"x\" * 60}')\n"
        "sys.stdout.flush(); sys.stderr.write(f'took {time.monotonic() - began:.1f} s'); sys.exit(1)\n"
    )
    bench.start_engine(os.sys.executable, "-c", flood)  # type: ignore[attr-defined]
    assert bench.end() == SuperviseExit.DIED_LOADING
    journal = bench.journal
    assert journal.count(" of a burst that nobody could read") == 200_000
    assert bench.state.words.endswith(" s")
    assert float(journal.split("took ")[1].split(" s")[0]) < 10


def test_a_supervisor_is_light(bench: Bench) -> None:
    heavy = "import sys, dsv4ctl.supervise.__main__; print([n for n in {} if sys.modules.get(n)])"
    names = ("pydantic", "jinja2", "click", "rich", "ssl", "psutil", "pynvml", "asyncio", "urllib.request")
    found = os.popen(f'{os.sys.executable} -c "{heavy.format(names)}"').read()  # type: ignore[attr-defined]  # noqa: S605
    assert found.strip() == "[]"
    bench.limit(watch_s=1).start().wait_ready()
    time.sleep(3)
    assert resident_bytes(bench.pid) < 30 * 1024 * 1024
    assert threads(bench.pid) <= 2


def resident_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def threads(pid: int) -> int:
    found = procs.stat(pid)
    assert found is not None
    return found.threads
